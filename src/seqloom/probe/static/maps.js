/* Where it looked, drawn: as a heat map, as ribbons, on the picture that was read; and all heads as small maps.
   A view (view.js) says which weights, and what may be done with them. */
import { el, roving, svg } from './elements.js';
import { KINDS, MEAN, averaged, entropy, largest, matrix } from './weights.js';
import { eased, percent, shade, veiled, visible, whole } from './wording.js';

const SLIGHT = 0.02; // weights under this have no ribbon
const MOST_RIBBONS = 3000; // the strongest ones
const NUMBERED = 30; // columns of a heat map whose cells still have room for numbers
const MOST_CELLS = 6400; // beyond, a map is one picture: so many elements would be slow

/** The weight that is drawn darkest: of a signal, of whose many positions none has much, the largest there is. */
export const darkest = (view) => (view.answer.signal && view.store.weights ? largest(view.store.weights, 0.01) : 1);

// --- the heat map -----------------------------------------------------------------------------------------------

function cell(view, weight, row, column) {
  const { rows, columns } = view.store;
  const share = `${visible(rows[row].label)} to ${visible(columns[column].label)}: ${whole(weight)}`;
  const numbered = columns.length <= NUMBERED && weight >= 0.095;
  const marks = { role: 'gridcell', 'data-row': row, 'data-column': column, 'aria-label': share };
  const deep = eased(weight / view.darkest);
  return el('td', { ...marks, class: shade(deep), '--w': deep },
    numbered ? String(Math.round(100 * weight)) : '');
}
function spreadCell(row) {
  const bits = entropy(row), most = Math.log2(Math.max(2, row.length));
  return el('td', { role: 'gridcell', class: 'side', 'aria-label': `entropy ${bits.toFixed(1)} bits` },
    el('div', {}, el('span', { class: 'bar' }, el('i', { '--w': Math.min(1, bits / most) })), bits.toFixed(1)));
}
function coverageRow({ columns, weights }) {
  const sums = columns.map((_, column) => weights.reduce((sum, row) => sum + row[column], 0));
  const most = Math.max(1, ...sums);
  const pillars = sums.map((sum, column) => {
    const name = `coverage of ${visible(columns[column].label)}: ${sum.toFixed(2)}`;
    return el('td', { role: 'gridcell', 'aria-label': name, title: sum.toFixed(2) },
      el('div', { class: 'pillar' }, el('i', { '--w': sum / most })), sums.length <= NUMBERED ? sum.toFixed(1) : '');
  });
  return el('tfoot', {}, el('tr', { role: 'row' }, el('th', { class: 'row', role: 'rowheader' }, 'coverage'), ...pillars, el('td')));
}
/** What was heard or measured: time across, features up. */
export function signal(view) {
  const { shape: [height, width], codes } = view.answer.signal;
  const canvas = el('canvas', { width, height, role: 'img', 'aria-label': 'the source: time from left to right, features from low to high' });
  const points = new ImageData(width, height);
  Array.from(atob(codes), (code) => code.charCodeAt(0) / 255).forEach((value, place) =>
    points.data.set([16 + 236 * value ** 1.2, 20 + 214 * value ** 1.6, 58 + 90 * value, 255], 4 * place));
  canvas.getContext('2d').putImageData(points, 0, 0);
  return canvas;
}
/** The source itself above the columns of a map over it. */
function heardRow(view) {
  const heard = view.answer.signal;
  if (!heard || KINDS[view.store.kind].columns !== 'source') return [];
  const rest = view.store.columns.slice(heard.shape[1]).map(() => el('td'));
  return [el('tr', { class: 'heard' }, el('th', { class: 'row' }, 'source'), el('td', { colspan: heard.shape[1] }, signal(view)), ...rest, el('td'))];
}
const titled = (view) => `${KINDS[view.store.kind].whole}${KINDS[view.store.kind].name}, ${view.where()}`;

export function heatMap(view) {
  const { rows, columns, weights } = view.store;
  view.darkest = darkest(view);
  if (rows.length * columns.length > MOST_CELLS) return paintedMap(view);
  const top = columns.map((unit, column) =>
    el('th', { role: 'columnheader', scope: 'col', 'data-top': column, title: unit.label }, el('span', { dir: 'auto', class: unit.unknown ? 'unknown' : null }, visible(unit.label))));
  const body = weights.map((row, index) => el('tr', { role: 'row', 'data-line': index },
    el('th', { class: rows[index].unknown ? 'row unknown' : 'row', role: 'rowheader', scope: 'row', dir: 'auto', title: rows[index].label }, visible(rows[index].label)),
    ...row.map((weight, column) => cell(view, weight, index, column)), spreadCell(row)));
  const size = columns.length > NUMBERED ? ' fine' : '';
  const table = el('table', { class: `map${size}`, role: 'grid', 'aria-label': titled(view) },
    el('thead', {}, el('tr', { role: 'row' }, el('td', { class: 'side' }), ...top, el('th', { class: 'side' }, 'entropy, bits')), ...heardRow(view)),
    el('tbody', {}, ...body), coverageRow(view.store));
  return el('div', { class: 'scroll' }, roving(table, 'td[data-row]', columns.length));
}

// --- a map of very many cells: one picture, and a cross that the pointer or the arrow keys move -------------------

/** One pixel per weight; the style sheet makes it large, and light on dark. */
function pixels(weights, most = 1) {
  const canvas = el('canvas', { width: weights[0].length, height: weights.length });
  const image = new ImageData(canvas.width, canvas.height);
  let place = 0;
  for (const row of weights) for (const weight of row) {
    image.data.set([8, 48, 107, Math.round(255 * eased(weight / most))], place);
    place += 4;
  }
  canvas.getContext('2d').putImageData(image, 0, 0);
  return canvas;
}
function paintedMap(view) {
  const { rows, columns, weights } = view.store;
  const canvas = pixels(weights, view.darkest), at = { row: 0, column: 0 };
  const scale = Math.max(2, Math.min(12, Math.floor(880 / columns.length)));
  canvas.style.width = `${scale * columns.length}px`;
  canvas.style.height = `${scale * rows.length}px`;
  const cross = el('i', { class: 'cross', 'aria-hidden': 'true' });
  const show = (row, column) => {
    Object.assign(at, { row, column });
    for (const [name, value] of [['--x', column * scale], ['--y', row * scale], ['--s', scale]]) cross.style.setProperty(name, `${value}px`);
    view.point({ row, column, output: KINDS[view.store.kind].rows === 'output' ? row : null, source: null, exact: true });
  };
  const of = (event) => {
    const { left, top, width, height } = canvas.getBoundingClientRect();
    const place = (value, size, count) => Math.max(0, Math.min(count - 1, Math.floor(value / size * count)));
    return [place(event.clientY - top, height, rows.length), place(event.clientX - left, width, columns.length)];
  };
  const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  const onkeydown = (event) => {
    if (event.key === 'Enter' && view.store.moving) return view.look(at.row, [at.column]);
    if (!(event.key in moves)) return;
    event.preventDefault();
    const far = event.shiftKey ? 10 : 1, [down, across] = moves[event.key];
    show(Math.max(0, Math.min(rows.length - 1, at.row + far * down)), Math.max(0, Math.min(columns.length - 1, at.column + far * across)));
  };
  const note = `${rows.length} x ${columns.length} weights, drawn as one picture: arrow keys move the cross`;
  const box = el('div', { class: 'painted', tabindex: 0, role: 'application', 'data-arrows': true, 'aria-label': `${titled(view)}; ${note}`, onkeydown,
    onpointermove: (event) => show(...of(event)), onclick: (event) => view.store.moving && view.look(of(event)[0], [of(event)[1]]) }, canvas, cross);
  return el('div', {}, el('p', { class: 'soft' }, note), el('div', { class: 'scroll' }, box));
}

// --- ribbons ------------------------------------------------------------------------------------------------------

export function ribbons(view) {
  const { rows, columns, weights } = view.store;
  const step = 28, height = step * Math.max(rows.length, columns.length);
  const middle = (index) => step * (index + 0.5);
  const all = weights.flatMap((row, r) => row.map((weight, c) => [weight, r, c]).filter(([weight]) => weight >= SLIGHT))
    .sort((one, other) => one[0] - other[0]);
  const curves = all.slice(-MOST_RIBBONS)
    .map(([weight, r, c]) => svg('path', { d: `M0 ${middle(c)}C50 ${middle(c)} 50 ${middle(r)} 100 ${middle(r)}`, 'data-row': r, 'data-column': c,
      'stroke-width': 1 + 9 * weight, 'stroke-opacity': 0.12 + 0.88 * eased(weight) }));
  const kind = KINDS[view.store.kind];
  const side = (from, every, title, place) => roving(el('div', { class: `column ${place}`, role: 'group', 'aria-label': title },
    el('span', { class: 'head' }, title), ...every.map((unit, index) => view.token(unit, index, from, { 'data-place': place }))), '.token');
  const title = `${kind.whole}${kind.name} as ribbons, the thicker the more; the heat map has the numbers`;
  const left = all.length - curves.length;
  const box = el('div', { class: 'ribbons' }, side(kind.columns, columns, kind.head, 'left'),
    svg('svg', { viewBox: `0 0 100 ${height}`, height, preserveAspectRatio: 'none', role: 'img', 'aria-label': title }, ...curves),
    side(kind.rows, rows, kind.rows === 'output' ? 'said' : 'read', 'right'));
  return left > 0 ? el('div', {}, el('p', { class: 'soft' }, `the ${curves.length} strongest ribbons; ${left} weaker ones are left out`), box) : box;
}

// --- pictures that were read ----------------------------------------------------------------------------------------

/** The picture that was read, darkened where nobody looked, of `most` on not at all; without weights as it is. */
export function seen(view, weights, most) {
  const { uri, rows, columns } = view.answer.picture;
  const frame = el('div', { class: 'seen' }, el('img', { src: uri, alt: '' }));
  if (!weights) return frame;
  const veil = el('canvas', { width: columns, height: rows, 'aria-hidden': 'true' });
  const image = new ImageData(columns, rows);
  weights.forEach((weight, place) => image.data.set([12, 14, 20, Math.round(255 * veiled(weight / most))], 4 * place));
  veil.getContext('2d').putImageData(image, 0, 0);
  frame.append(veil);
  return frame;
}
/** The weights of one token over the regions of the picture. */
const overRegions = (view, row) => row.slice(0, view.answer.picture.rows * view.answer.picture.columns);
/** The weight that is drawn brightest: the largest that any token gave to any region, so that pictures can be compared. */
export const brightest = (view) => Math.max(1e-9, ...view.store.weights.flatMap((row) => overRegions(view, row)));
export function pictures(view) {
  const most = brightest(view);
  const figures = view.store.weights.map((row, index) => {
    const regions = overRegions(view, row), inside = regions.reduce((sum, weight) => sum + weight, 0);
    const label = visible(view.store.rows[index].label), top = whole(Math.max(...regions));
    return el('figure', { tabindex: 0, 'data-side': 'output', 'data-unit': index, 'aria-label': `${label}: ${whole(inside)} of its look is inside of the picture, at most ${top} in a region` },
      seen(view, regions, most), el('figcaption', {}, el('b', { class: 'label', dir: 'auto' }, label),
        el('span', { class: 'soft' }, `p ${percent(view.sureness(view.store.rows[index]))}`), el('span', { class: 'soft' }, `at most ${top}`),
        el('span', { class: 'soft' }, `${whole(1 - inside)} elsewhere`)));
  });
  return roving(el('div', { class: 'looks', role: 'group', 'aria-label': 'where each token looked in the picture' }, ...figures), 'figure');
}

// --- all heads ------------------------------------------------------------------------------------------------------

function small(view, stack, layer, head) {
  const weights = matrix(stack, layer, head, view.store.rows, view.store.columns);
  const bits = averaged(weights.map(entropy)).toFixed(1);
  const masked = head !== MEAN && view.actions.masked?.(view.store.kind, layer, head);
  const name = head === MEAN ? 'mean' : `head ${head + 1}`;
  const label = `layer ${layer + 1}, ${name}, ${masked ? 'masked' : `entropy ${bits} bits`}`;
  const canvas = pixels(weights);
  canvas.setAttribute('aria-hidden', 'true');
  canvas.style.height = `${Math.max(12, Math.min(110, 72 * weights.length / weights[0].length))}px`;
  return el('button', { type: 'button', class: masked ? 'masked' : null, 'data-layer': layer, 'data-head': head, 'aria-label': label, onclick: () => view.change({ layer, head }) },
    canvas, el('span', { class: 'name' }, name), el('span', { class: 'name soft' }, masked ? 'masked' : `${bits} bits`));
}
/** Every layer and head of the weights that are shown, small. */
export function allHeads(view, stack) {
  const [layers, count] = stack.shape;
  const wanted = count > 1 ? [MEAN, ...Array(count).keys()] : [0];
  const rows = [...Array(layers).keys()].flatMap((layer) =>
    [el('span', { class: 'rowname' }, `layer ${layer + 1}`), ...wanted.map((head) => small(view, stack, layer, head))]);
  const grid = roving(el('div', { class: 'heads' }, ...rows), 'button', wanted.length);
  grid.style.gridTemplateColumns = `auto repeat(${wanted.length}, auto)`;
  return [el('h3', {}, 'all layers and heads'), el('div', { class: 'scroll' }, grid)];
}
