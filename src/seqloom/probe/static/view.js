/* Draws one answer: what was read and said, where it looked, how search found it. Data becomes text nodes and
   attributes, never markup. Begins every script: page.js or report.js follow in the same scope, and choose the answer. */
const data = JSON.parse(document.getElementById('data').textContent);
const WEIGHTS = Float64Array.from({ length: data.steps + 1 }, (_, code) => (code / data.steps) ** 2);
const LOOKED = { verb: 'looked at', by: 'was looked at most by', head: 'looked at', whole: 'attention ' };
const CAME = { verb: 'came from', by: 'mattered most to', head: 'came from', whole: 'what it ' };
const KINDS = {
  source: { name: 'to the source', rows: 'output', columns: 'source', ...LOOKED },
  within_source: { name: 'within the source', rows: 'source', columns: 'source', ...LOOKED, verb: 'looks at' },
  within_output: { name: 'within the output', rows: 'output', columns: 'heard', ...LOOKED },
  from_source: { name: 'came from the source', rows: 'output', columns: 'source', ...CAME },
  from_output: { name: 'from what it had said', rows: 'output', columns: 'output', ...CAME },
};
const MEAN = -1; // in the place of a head
const SLIGHT = 0.02; // weights under this have no ribbon
const NONE = 'This model has no attention to the source: what it read reaches it through its states alone.';
const NUMBERED = 30; // columns of a heat map whose cells still have room for numbers

// The one store: what is looked at. `pinned` was clicked, `lit` is under the pointer or has the focus.
const store = {
  at: 0, kind: 'source', layer: Infinity, head: MEAN, view: 'map', words: false, pinned: null, lit: null,
  rows: [], columns: [], weights: null,
};
const answer = () => data.answers[store.at];
const parts = {}; // elements that are drawn anew when the store changes

// --- elements -------------------------------------------------------------------------------------------------

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('--')) element.style.setProperty(name, value);
    else if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  return element;
}
function el(tag, attributes = {}, ...children) {
  const element = set(document.createElement(tag), attributes);
  element.append(...children);
  return element;
}
function svg(tag, attributes = {}, ...children) {
  const element = set(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes);
  element.append(...children);
  return element;
}

// --- text -----------------------------------------------------------------------------------------------------

const BLANKS = { ' ': '␣', '\u00a0': '␣', '\n': '⏎', '\t': '⇥' };
const UNSEEN = /[\u0000-\u0020\u007f-\u00a0\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

/** What takes no room, or turns the text around it, is written visibly. */
function visible(token) {
  const code = (character) => `U+${character.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}`;
  return token === '' ? '∅' : token.replace(UNSEEN, (character) => BLANKS[character] ?? code(character));
}
const direction = (text) => (RIGHT_TO_LEFT.test(text.match(/\p{L}/u)?.[0] ?? '') ? 'rtl' : 'ltr');
function graphemes(text) {
  return window.Intl && Intl.Segmenter ? Array.from(new Intl.Segmenter().segment(text), (one) => one.segment) : Array.from(text);
}
/** Cut to so many columns; characters of Asian scripts and emoji count two. */
function short(text, columns) {
  let room = columns, kept = '';
  for (const one of graphemes(text)) {
    room -= one.codePointAt(0) >= 0x1100 ? 2 : 1;
    if (room < 0) return kept + '…';
    kept += one;
  }
  return kept;
}
const quoted = (text) => `“\u2068${visible(text)}\u2069”`; // isolated: its direction is its own
const probability = (logProb) => (logProb === null ? 0 : Math.exp(logProb));
const percent = (share) => (share > 0 && share < 0.001 ? '<0.1 %' : `${(100 * share).toFixed(1)} %`);
const whole = (share) => (share > 0 && share < 0.005 ? '<1 %' : `${Math.round(100 * share)} %`);
const number = (value, digits = 3) => (value === null ? '−∞' : value.toFixed(digits));
/** Shades are dark from here on: on these, letters are light. The style sheet says so, for `mid` in dark mode only. */
const shade = (depth) => (depth > 0.58 ? 'deep' : depth > 0.42 ? 'mid' : null);
const veiled = (share) => 0.88 * (1 - Math.sqrt(share)); // how dark a region of a picture becomes that has so much of the most
const eased = (weight) => Math.min(1, weight) ** 0.75; // so that small weights are seen at all

// --- weights --------------------------------------------------------------------------------------------------

/** Weights as bytes, once. */
function prepare(one) {
  if (one.heard) return;
  const { tokens, words, labels } = one.output;
  one.heard = { tokens: [data.begin, ...tokens.slice(0, -1)], words: [-1, ...words.slice(0, -1)], labels };
  for (const stack of Object.values(one.attention)) {
    stack.bytes = Uint8Array.from(atob(stack.codes), (character) => character.charCodeAt(0));
    delete stack.codes;
  }
}
/** What is drawn as one: a token, or with `words` the tokens of one word. An encoder of its own sees the first ones. */
function units(side, count = side.tokens.length) {
  const tokens = side.tokens.slice(0, count);
  if (!store.words) return tokens.map((token, place) => ({ label: token, places: [place] }));
  const found = new Map();
  side.words.slice(0, count).forEach((word, place) => {
    const key = word < 0 ? `token ${place}` : word;
    if (!found.has(key)) found.set(key, { label: word < 0 ? side.tokens[place] : side.labels[word], places: [] });
    found.get(key).places.push(place);
  });
  for (const unit of found.values()) unit.label ??= unit.places.map((place) => side.tokens[place]).join('');
  return [...found.values()];
}
const merges = (side) => new Set(side.words.filter((word) => word >= 0)).size < side.words.filter((word) => word >= 0).length;
const heads = (stack, head) => (head === MEAN ? [...Array(stack.shape[1]).keys()] : [head]);

/** Weights of one layer and head between units: summed over a column's tokens, averaged over a row's. */
function matrix(stack, layer, head, rows, columns) {
  const [, count, height, width] = stack.shape;
  const chosen = heads(stack, head);
  return rows.map((row) => columns.map((column) => {
    let sum = 0;
    for (const h of chosen) for (const t of row.places) for (const s of column.places) {
      sum += WEIGHTS[stack.bytes[((layer * count + h) * height + t) * width + s]];
    }
    return sum / (chosen.length * row.places.length);
  }));
}
const entropy = (row) => Math.abs(row.reduce((sum, weight) => (weight > 0 ? sum - weight * Math.log2(weight) : sum), 0));
const averaged = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Choose what can be chosen of this answer, and compute what is drawn of it. */
function settle() {
  const kinds = Object.keys(KINDS).filter((kind) => answer().attention[kind]);
  if (!kinds.includes(store.kind)) store.kind = kinds[0] ?? 'source';
  const stack = answer().attention[store.kind];
  const kind = KINDS[store.kind];
  store.rows = units(answer()[kind.rows], stack?.shape[2]);
  store.columns = units(answer()[kind.columns], stack?.shape[3]);
  store.weights = null;
  if (!stack) return;
  store.layer = Math.min(store.layer, stack.shape[0] - 1);
  store.head = Math.min(store.head, stack.shape[1] - 1);
  store.weights = matrix(stack, store.layer, store.head, store.rows, store.columns);
}
function where() {
  if (answer().glimpse) return 'the last layer, mean of its heads';
  if (KINDS[store.kind].whole === CAME.whole) return `by ${data.method}`;
  const layer = `layer ${store.layer + 1}`;
  if (answer().attention[store.kind].shape[1] === 1) return layer;
  return `${layer}, ${store.head === MEAN ? 'mean of the heads' : `head ${store.head + 1}`}`;
}

// --- keys -----------------------------------------------------------------------------------------------------

/** Arrow keys move inside of a box; Tab enters and leaves it. */
function roving(box, selector, columns = 1) {
  const items = () => [...box.querySelectorAll(selector)];
  items().forEach((item, index) => { item.tabIndex = index === 0 ? 0 : -1; });
  set(box, { 'data-arrows': true, onkeydown: (event) => {
    const all = items(), at = all.indexOf(document.activeElement), next = box.dir === 'rtl' ? -1 : 1;
    const steps = { ArrowLeft: at - next, ArrowRight: at + next, ArrowUp: at - columns, ArrowDown: at + columns, Home: 0, End: all.length - 1 };
    if (at < 0 || !(event.key in steps)) return;
    event.preventDefault();
    all[steps[event.key]]?.focus();
  } });
  box.addEventListener('focusin', (event) => {
    for (const item of items()) if (item.tabIndex === 0) item.tabIndex = -1;
    event.target.tabIndex = 0;
  });
  return box;
}

// --- what was read and said -----------------------------------------------------------------------------------

function token(unit, index, side, more = {}) {
  const usual = { type: 'button', class: 'token', dir: 'auto', 'data-side': side, 'data-unit': index, title: unit.label };
  return el('button', { ...usual, ...more }, visible(unit.label));
}
const sureness = (unit) => probability(unit.places.reduce((sum, place) => {
  const value = answer().steps[place].log_prob;
  return sum === null || value === null ? null : sum + value;
}, 0));

function saidToken(unit, index) {
  const sure = sureness(unit);
  const unreal = answer().truncated && unit.places[0] === answer().steps.length - 1;
  const name = `${visible(unit.label)}, probability ${percent(sure)}${unreal ? ', not said: the answer was cut off' : ''}`;
  return token(unit, index, 'output', { class: `token doubted${unreal ? ' unreal' : ''}`, '--d': 1 - sure, 'aria-label': name });
}
function scale(name, low, high) {
  const shades = [0, 0.25, 0.5, 0.75, 1].map((share) => el('i', { class: name, '--w': eased(share), '--d': share, '--v': veiled(share) }));
  return el('span', { class: 'scale', 'aria-hidden': 'true' }, low, el('span', {}, ...shades), high);
}
function drawSaid() {
  const { text, extras, answer: said, log_prob: sum, truncated, source, output } = answer();
  const further = Object.entries(extras).map(([name, value]) => el('p', { class: 'soft', dir: 'auto' }, `${name}: ${value}`));
  const line = (side, whole, tokens) => {
    const name = `tokens of the ${side}`;
    return roving(el('div', { class: 'tokens', dir: direction(whole), role: 'group', 'aria-label': name }, ...tokens), '.token');
  };
  parts.detail = el('div', { class: 'detail', role: 'region', 'aria-label': 'what else was likely' });
  parts.said.replaceChildren(
    el('div', {},
      el('h2', { class: 'soft' }, 'It read'), el('p', { class: 'text', dir: 'auto' }, text), ...further,
      answer().picture ? seen(null) : answer().signal ? el('div', { class: 'signal' }, signal()) : answer().regions ? '' : line('source', text, units(source).map((unit, index) => token(unit, index, 'source'))),
      el('h2', { class: 'soft' }, 'It said'), el('p', { class: 'text answer', dir: 'auto' }, said || '(nothing)'),
      line('output', said, units(output).map(saidToken)),
      scale('doubt', 'sure', 'improbable'),
      el('p', { class: 'soft' }, `log-probability ${number(sum)}${truncated ? '; cut off at the limit: its end is not its own' : ''}`)),
    parts.detail);
}
function leastSure() {
  const all = units(answer().output).slice(0, answer().truncated ? -1 : undefined);
  const sure = all.map(sureness);
  return all[sure.indexOf(Math.min(...sure))] ?? null;
}
function bars(place) {
  const step = answer().steps[place], own = answer().output.tokens[place];
  const at = step.likeliest.findIndex(([label]) => label === own);
  const rows = step.likeliest.map(([label, logProb], index) => [label, logProb, index === at]);
  if (at < 0) rows.push([own, step.log_prob, true]);
  return el('div', { class: 'bars' }, ...rows.flatMap(([label, logProb, is]) => [
    el('span', { class: `label${is ? ' own' : ''}`, dir: 'auto', title: label }, visible(label)),
    el('span', { class: `bar${is ? ' own' : ''}` }, el('i', { '--w': probability(logProb) })),
    el('span', { class: 'number' }, percent(probability(logProb))),
  ]));
}
function drawDetail(index) {
  const unit = index === null ? leastSure() : units(answer().output)[index];
  if (!unit) return parts.detail.replaceChildren();
  const sure = sureness(unit);
  const lines = unit.places.flatMap((place) => {
    const piece = answer().output.tokens[place], step = answer().steps[place];
    const rank = step.rank === 1 ? 'nothing was likelier' : `rank ${step.rank}: ${step.rank - 1} likelier`;
    const part = [el('span', { class: 'label', dir: 'auto' }, visible(piece)), ` ${percent(probability(step.log_prob))}, `];
    return [el('p', { class: 'soft' }, ...(unit.places.length > 1 ? part : []), rank), bars(place)];
  });
  parts.detail.replaceChildren(
    el('h2', { class: 'soft' }, index === null ? 'Where it was least sure' : 'What else was likely'),
    el('p', {}, el('b', { class: 'label', dir: 'auto' }, visible(unit.label)), ` ${percent(sure)}`), ...lines);
}

// --- where it looked: the heat map and the ribbons -------------------------------------------------------------

/** The weight that is drawn darkest: of a signal, of whose many positions none has much, the largest there is. */
const darkest = () => (answer().signal && store.weights ? Math.max(0.01, ...store.weights.flat()) : 1);
function cell(weight, row, column) {
  const share = `${visible(store.rows[row].label)} to ${visible(store.columns[column].label)}: ${whole(weight)}`;
  const numbered = store.columns.length <= NUMBERED && weight >= 0.095;
  const marks = { role: 'gridcell', 'data-row': row, 'data-column': column, 'aria-label': share };
  const deep = eased(weight / darkest());
  return el('td', { ...marks, class: shade(deep), '--w': deep },
    numbered ? String(Math.round(100 * weight)) : '');
}
function spreadCell(row) {
  const bits = entropy(row), most = Math.log2(Math.max(2, row.length));
  return el('td', { role: 'gridcell', class: 'side', 'aria-label': `entropy ${bits.toFixed(1)} bits` },
    el('div', {}, el('span', { class: 'bar' }, el('i', { '--w': Math.min(1, bits / most) })), bits.toFixed(1)));
}
function coverageRow() {
  const sums = store.columns.map((_, column) => store.weights.reduce((sum, row) => sum + row[column], 0));
  const most = Math.max(1, ...sums);
  const pillars = sums.map((sum, column) => {
    const name = `coverage of ${visible(store.columns[column].label)}: ${sum.toFixed(2)}`;
    return el('td', { role: 'gridcell', 'aria-label': name, title: sum.toFixed(2) },
      el('div', { class: 'pillar' }, el('i', { '--w': sum / most })), sums.length <= NUMBERED ? sum.toFixed(1) : '');
  });
  return el('tfoot', {}, el('tr', { role: 'row' }, el('th', { class: 'row', role: 'rowheader' }, 'coverage'), ...pillars, el('td')));
}
/** What was heard or measured: time across, features up. */
function signal() {
  const { shape: [height, width], codes } = answer().signal;
  const canvas = el('canvas', { width, height, role: 'img', 'aria-label': 'the source: time from left to right, features from low to high' });
  const points = new ImageData(width, height);
  Array.from(atob(codes), (code) => code.charCodeAt(0) / 255).forEach((value, place) =>
    points.data.set([16 + 236 * value ** 1.2, 20 + 214 * value ** 1.6, 58 + 90 * value, 255], 4 * place));
  canvas.getContext('2d').putImageData(points, 0, 0);
  return canvas;
}
/** The source itself above the columns of a map over it. */
function heardRow() {
  const heard = answer().signal;
  if (!heard || KINDS[store.kind].columns !== 'source') return [];
  const rest = store.columns.slice(heard.shape[1]).map(() => el('td'));
  return [el('tr', { class: 'heard' }, el('th', { class: 'row' }, 'source'), el('td', { colspan: heard.shape[1] }, signal()), ...rest, el('td'))];
}
function heatMap() {
  const top = store.columns.map((unit, column) =>
    el('th', { role: 'columnheader', scope: 'col', 'data-top': column, title: unit.label }, el('span', { dir: 'auto' }, visible(unit.label))));
  const body = store.weights.map((row, index) => el('tr', { role: 'row', 'data-line': index },
    el('th', { class: 'row', role: 'rowheader', scope: 'row', dir: 'auto', title: store.rows[index].label }, visible(store.rows[index].label)),
    ...row.map((weight, column) => cell(weight, index, column)), spreadCell(row)));
  const size = store.columns.length > NUMBERED ? ' fine' : '';
  const table = el('table', { class: `map${size}`, role: 'grid', 'aria-label': `${KINDS[store.kind].whole}${KINDS[store.kind].name}, ${where()}` },
    el('thead', {}, el('tr', { role: 'row' }, el('td', { class: 'side' }), ...top, el('th', { class: 'side' }, 'entropy, bits')), ...heardRow()),
    el('tbody', {}, ...body), coverageRow());
  return el('div', { class: 'scroll' }, roving(table, 'td[data-row]', store.columns.length));
}
function ribbons() {
  const step = 28, height = step * Math.max(store.rows.length, store.columns.length);
  const middle = (index) => step * (index + 0.5);
  const curves = store.weights.flatMap((row, r) => row.map((weight, c) => [weight, r, c])).filter(([weight]) => weight >= SLIGHT)
    .sort((one, other) => one[0] - other[0])
    .map(([weight, r, c]) => svg('path', { d: `M0 ${middle(c)}C50 ${middle(c)} 50 ${middle(r)} 100 ${middle(r)}`, 'data-row': r, 'data-column': c,
      'stroke-width': 1 + 9 * weight, 'stroke-opacity': 0.12 + 0.88 * eased(weight) }));
  const { rows, columns, name, head, whole } = KINDS[store.kind];
  const side = (from, all, title, place) => roving(el('div', { class: `column ${place}`, role: 'group', 'aria-label': title },
    el('span', { class: 'head' }, title), ...all.map((unit, index) => token(unit, index, from, { 'data-place': place }))), '.token');
  const title = `${whole}${name} as ribbons, the thicker the more; the heat map has the numbers`;
  return el('div', { class: 'ribbons' }, side(columns, store.columns, head, 'left'),
    svg('svg', { viewBox: `0 0 100 ${height}`, height, preserveAspectRatio: 'none', role: 'img', 'aria-label': title }, ...curves),
    side(rows, store.rows, rows === 'output' ? 'said' : 'read', 'right'));
}
/** The picture that was read, darkened where nobody looked, of `most` on not at all; without weights as it is. */
function seen(weights, most) {
  const { uri, rows, columns } = answer().picture;
  const frame = el('div', { class: 'seen' }, el('img', { src: uri, alt: '' }));
  if (!weights) return frame;
  const veil = el('canvas', { width: columns, height: rows, 'aria-hidden': 'true' });
  const pixels = new ImageData(columns, rows);
  weights.forEach((weight, place) => pixels.data.set([12, 14, 20, Math.round(255 * veiled(weight / most))], 4 * place));
  veil.getContext('2d').putImageData(pixels, 0, 0);
  frame.append(veil);
  return frame;
}
/** The weights of one token over the regions of the picture. */
const overRegions = (row) => row.slice(0, answer().picture.rows * answer().picture.columns);
/** The weight that is drawn brightest: the largest that any token gave to any region, so that pictures can be compared. */
const brightest = () => Math.max(1e-9, ...store.weights.flatMap(overRegions));
function pictures() {
  const most = brightest();
  const figures = store.weights.map((row, index) => {
    const regions = overRegions(row), inside = regions.reduce((sum, weight) => sum + weight, 0);
    const label = visible(store.rows[index].label), top = whole(Math.max(...regions));
    return el('figure', { tabindex: 0, 'data-side': 'output', 'data-unit': index, 'aria-label': `${label}: ${whole(inside)} of its look is inside of the picture, at most ${top} in a region` },
      seen(regions, most), el('figcaption', {}, el('b', { class: 'label', dir: 'auto' }, label),
        el('span', { class: 'soft' }, `p ${percent(sureness(store.rows[index]))}`), el('span', { class: 'soft' }, `at most ${top}`),
        el('span', { class: 'soft' }, `${whole(1 - inside)} elsewhere`)));
  });
  return roving(el('div', { class: 'looks', role: 'group', 'aria-label': 'where each token looked in the picture' }, ...figures), 'figure');
}
/** Is there a picture to draw these weights on? */
const pictured = () => Boolean(answer().picture) && KINDS[store.kind].columns === 'source' && KINDS[store.kind].rows === 'output';
const onPicture = () => store.view === 'picture' && pictured();
function drawMap() {
  const views = { picture: pictures, map: heatMap, ribbons };
  const view = store.view === 'picture' && !pictured() ? 'map' : store.view;
  parts.map.replaceChildren(store.weights === null ? '' : views[view]());
  paint();
}

// --- light: what hangs together with what is pointed at --------------------------------------------------------

/** Row, column and output unit that an element stands for. */
function meant(element) {
  const one = element.closest?.('[data-row], [data-unit]');
  if (!one) return null;
  const { row, column, side, unit, place } = one.dataset;
  const kind = KINDS[store.kind];
  if (row !== undefined) return { row: +row, column: +column, output: kind.rows === 'output' ? +row : null, exact: true };
  const isRow = place ? place === 'right' : side === kind.rows;
  return { row: isRow ? +unit : null, column: !isRow && side === kind.columns ? +unit : null, output: side === 'output' ? +unit : null };
}
const same = (one, other) => one?.row === other?.row && one?.column === other?.column && one?.output === other?.output;
function point(event) {
  const lit = meant(event.target);
  if (same(lit, store.lit) && !lit === !store.lit) return;
  store.lit = lit;
  paint();
}
function pin(event) {
  const clicked = meant(event.target);
  if (!clicked) return;
  store.pinned = same(clicked, store.pinned) && store.pinned ? null : clicked;
  paint();
}
/** How much a token of the lines above is looked at by, or looks at, what is lit. */
function share(lit, side, unit) {
  const { rows, columns } = KINDS[store.kind];
  if (!store.weights || !lit) return null;
  if (lit.row !== null) {
    if (side === columns) return store.weights[lit.row]?.[unit] ?? null;
    return columns === 'heard' && side === 'output' ? store.weights[lit.row]?.[unit + 1] ?? null : null;
  }
  return lit.column !== null && side === rows ? store.weights[unit]?.[lit.column] ?? null : null;
}
function paintTokens(lit) {
  for (const element of document.querySelectorAll('.token')) {
    const { side, unit, place } = element.dataset;
    const isRow = place ? place === 'right' : side === KINDS[store.kind].rows;
    const asOutput = side === 'output' && lit?.row === null && lit.output === +unit;
    const isLit = lit !== null && (isRow ? lit.row === +unit || asOutput : lit.column === +unit);
    const weight = place ? null : share(lit, side, +unit);
    element.classList.toggle('lit', isLit);
    element.classList.toggle('shaded', weight !== null && !isLit);
    for (const name of ['deep', 'mid']) element.classList.toggle(name, weight !== null && !isLit && shade(eased(weight)) === name);
    if (weight !== null) element.style.setProperty('--w', eased(weight));
    element.setAttribute('aria-pressed', store.pinned !== null && same(meant(element), store.pinned));
  }
}
function paintMap(lit) {
  const hit = (row, column) => lit !== null && (lit.exact ? lit.row === row && lit.column === column : lit.row === row || lit.column === column);
  for (const line of parts.map.querySelectorAll('[data-line]')) line.classList.toggle('lit', lit?.row === +line.dataset.line);
  for (const figure of parts.map.querySelectorAll('figure')) figure.classList.toggle('lit', lit?.row === +figure.dataset.unit);
  for (const top of parts.map.querySelectorAll('[data-top]')) top.classList.toggle('lit', lit?.column === +top.dataset.top);
  for (const path of parts.map.querySelectorAll('path')) path.classList.toggle('lit', hit(+path.dataset.row, +path.dataset.column));
  parts.map.querySelector('.ribbons')?.classList.toggle('lit', lit !== null && (lit.row !== null || lit.column !== null));
}
/** The three of these that have the most, in words. */
function most(list, weightOf) {
  const all = list.map((unit, index) => [weightOf(index), unit]).sort((one, other) => other[0] - one[0]);
  const named = all.slice(0, 3).filter(([weight]) => weight >= 0.005);
  return named.map(([weight, unit]) => `${quoted(unit.label)} ${whole(weight)}`).join(', ') || 'nothing';
}
function readout(lit) {
  const { rows, columns, weights } = store, { verb, by } = KINDS[store.kind];
  if (!weights) return '';
  if (onPicture() && !lit) return `${where()}: bright where it looked, all pictures on one scale; point at one`;
  if (!lit || (lit.row === null && lit.column === null)) return `${where()}: point at a token, a cell or a ribbon; a click keeps it`;
  if (lit.row === null) return `${quoted(columns[lit.column].label)} ${by} ${most(rows, (row) => weights[row][lit.column])}`;
  const who = `${quoted(rows[lit.row].label)} ${verb}`;
  if (!lit.exact) return `${who} ${most(columns, (column) => weights[lit.row][column])}`;
  return `${who} ${quoted(columns[lit.column].label)}: ${whole(weights[lit.row][lit.column])} (${where()})`;
}
function paint() {
  const lit = store.lit ?? store.pinned;
  paintTokens(lit);
  paintMap(lit);
  drawDetail(lit?.output ?? store.pinned?.output ?? null);
  parts.readout.textContent = readout(lit);
}

// --- controls, and all heads as small maps ----------------------------------------------------------------------

function selector(name, options, value, change) {
  const lines = options.map(([key, text]) => el('option', { value: key }, text));
  const select = el('select', { onchange: (event) => change(+event.target.value) }, ...lines);
  select.value = value;
  return el('label', { 'data-control': name }, name, select);
}
function choice(name, options, change) {
  return el('fieldset', { class: 'choice', 'data-control': name, 'aria-label': name }, ...Object.entries(options).map(([key, text]) =>
    el('label', {}, el('input', { type: 'radio', name, value: key, checked: store[name] === key, onchange: () => change(key) }), text)));
}
function counted(name, stack, place) {
  const all = [...Array(stack.shape[place]).keys()].map((index) => [index, String(index + 1)]);
  return name === 'head' && all.length > 1 ? [[MEAN, 'mean'], ...all] : all;
}
function drawControls() {
  const { attention, source, output } = answer(), stack = attention[store.kind];
  const names = Object.fromEntries(Object.keys(KINDS).filter((kind) => attention[kind]).map((kind) => [kind, KINDS[kind].name]));
  const focused = document.activeElement.closest?.('[data-control]')?.dataset.control;
  const shown = [];
  if (stack) {
    const views = { ...(pictured() ? { picture: 'picture' } : {}), map: 'heat map', ribbons: 'ribbons' };
    shown.push(choice('view', views, (view) => change({ view })));
    if (Object.keys(names).length > 1) shown.push(choice('kind', names, (kind) => change({ kind, pinned: null, lit: null })));
    if (stack.shape[0] > 1) shown.push(selector('layer', counted('layer', stack, 0), store.layer, (layer) => change({ layer })));
    if (stack.shape[1] > 1) shown.push(selector('head', counted('head', stack, 1), store.head, (head) => change({ head })));
  }
  if (merges(source) || merges(output)) {
    const onchange = (event) => change({ words: event.target.checked, pinned: null, lit: null });
    const box = el('input', { type: 'checkbox', checked: store.words, onchange });
    shown.push(el('label', { 'data-control': 'words' }, box, 'whole words'));
  }
  if (stack) shown.push(onPicture() ? scale('veil', '0', `${whole(brightest())} of its look in a region`) : scale('look', '0', whole(darkest())));
  parts.controls.replaceChildren(...shown);
  if (focused) parts.controls.querySelector(`[data-control="${focused}"] :is(select, :checked, [type=checkbox])`)?.focus();
}
/** One pixel per weight; the style sheet makes it large, and light on dark. */
function picture(weights) {
  const canvas = el('canvas', { width: weights[0].length, height: weights.length, 'aria-hidden': 'true' });
  const pixels = new ImageData(canvas.width, canvas.height);
  weights.flat().forEach((weight, index) => pixels.data.set([8, 48, 107, Math.round(255 * eased(weight))], 4 * index));
  canvas.getContext('2d').putImageData(pixels, 0, 0);
  canvas.style.height = `${Math.max(12, Math.min(110, 72 * weights.length / weights[0].length))}px`;
  return canvas;
}
function small(stack, layer, head) {
  const weights = matrix(stack, layer, head, store.rows, store.columns);
  const bits = averaged(weights.map(entropy)).toFixed(1);
  const name = head === MEAN ? 'mean' : `head ${head + 1}`;
  const label = `layer ${layer + 1}, ${name}, entropy ${bits} bits`;
  const onclick = () => change({ layer, head });
  return el('button', { type: 'button', 'data-layer': layer, 'data-head': head, 'aria-label': label, onclick },
    picture(weights), el('span', { class: 'name' }, name), el('span', { class: 'name soft' }, `${bits} bits`));
}
function drawHeads() {
  const stack = answer().attention[store.kind];
  parts.heads.hidden = !stack || stack.shape[0] * stack.shape[1] < 2;
  if (parts.heads.hidden) return parts.heads.replaceChildren();
  const [layers, count] = stack.shape;
  const wanted = count > 1 ? [MEAN, ...Array(count).keys()] : [0];
  const rows = [...Array(layers).keys()].flatMap((layer) =>
    [el('span', { class: 'rowname' }, `layer ${layer + 1}`), ...wanted.map((head) => small(stack, layer, head))]);
  const grid = roving(el('div', { class: 'heads' }, ...rows), 'button', wanted.length);
  grid.style.gridTemplateColumns = `auto repeat(${wanted.length}, auto)`;
  parts.heads.replaceChildren(el('h3', {}, 'all layers and heads'), el('div', { class: 'scroll' }, grid));
}
function pressHeads() {
  const single = answer().attention[store.kind]?.shape[1] === 1;
  for (const button of parts.heads.querySelectorAll('button')) {
    const { layer, head } = button.dataset;
    button.setAttribute('aria-pressed', +layer === store.layer && (single || +head === store.head));
  }
}

// --- the beam ---------------------------------------------------------------------------------------------------

const BOX = { width: 82, height: 32, across: 112, down: 40, top: 24 };
const MARKS = {
  ended: () => svg('rect', { class: 'mark full', x: -4, y: -4, width: 8, height: 8 }),
  'fell out': () => svg('path', { class: 'mark', d: 'M-4 -4L4 4M-4 4L4 -4' }),
  left: () => svg('circle', { class: 'mark', r: 4 }),
  'cut off': () => svg('path', { class: 'mark', d: 'M-3 -5V5M3 -5V5' }),
};
function placed() {
  const nodes = answer().tree.map(([parent, step, label, logProb, total, score, fate, won], index) =>
    ({ index, parent, step, label, logProb, total, score, fate, won, children: [] }));
  const steps = new Map();
  for (const node of nodes) steps.set(node.step, [...(steps.get(node.step) ?? []), node]);
  for (const column of steps.values()) {
    column.sort((one, other) => (other.total ?? -Infinity) - (one.total ?? -Infinity));
    column.forEach((node, rank) => { node.rank = rank; node.x = 6 + node.step * BOX.across; node.y = BOX.top + rank * BOX.down; });
  }
  for (const node of nodes) if (node.parent !== null) nodes[node.parent].children.push(node);
  for (const node of nodes) node.children.sort((one, other) => one.rank - other.rank);
  return { nodes, steps };
}
function way(nodes, node) {
  const found = [];
  for (let at = node; at; at = at.parent === null ? null : nodes[at.parent]) found.unshift(at);
  return found;
}
function story(nodes, node) {
  const said = way(nodes, node).slice(1).map((one) => visible(one.label)).join(' ');
  if (!said) return 'the beginning';
  const won = node.won && !node.children.length ? 'the answer; ' : '';
  const numbers = `score ${number(node.score)}, this token ${percent(probability(node.logProb))}, place ${node.rank + 1} of its step`;
  return `\u2068${said}\u2069: ${numbers}; ${won}${data.fates[node.fate]}`;
}
function edge(nodes, node, lowest) {
  const from = nodes[node.parent], x = from.x + BOX.width, half = BOX.height / 2, bend = (node.x - x) / 2;
  const thickness = 1 + 3 * (1 - node.rank / lowest) + (node.won ? 1 : 0);
  return svg('path', { class: `edge${node.won ? ' won' : ''}`, 'data-node': node.index, 'stroke-width': thickness,
    d: `M${x} ${from.y + half}C${x + bend} ${from.y + half} ${node.x - bend} ${node.y + half} ${node.x} ${node.y + half}` });
}
function drawn(nodes, node) {
  const dead = !node.children.length && node.fate !== 'ended';
  const mark = MARKS[node.fate];
  const kind = `node${node.won ? ' won' : ''}${dead ? ' dead' : ''}`;
  const place = { 'data-node': node.index, transform: `translate(${node.x} ${node.y})` };
  const group = svg('g', { class: kind, role: 'button', 'aria-label': story(nodes, node), ...place },
    svg('rect', { width: BOX.width, height: BOX.height, rx: 5 }),
    svg('text', { class: 'name', x: 6, y: 14, direction: 'ltr' }, short(visible(node.label), 9)));
  if (node.parent !== null) group.append(svg('text', { class: 'tiny', x: 6, y: 26 }, number(node.score, 2)));
  if (mark) group.append(svg('g', { transform: `translate(${BOX.width - 10} 22)` }, mark()));
  return group;
}
function legend(nodes) {
  const seen = Object.keys(MARKS).filter((fate) => nodes.some((node) => node.fate === fate));
  const sign = (...shapes) => svg('svg', { viewBox: '-7 -7 14 14', 'aria-hidden': 'true' }, ...shapes);
  return el('div', { class: 'fates' }, el('span', {}, sign(svg('path', { class: 'way', d: 'M-7 0H7' })), 'the way to the answer'),
    ...seen.map((fate) => el('span', {}, sign(MARKS[fate]()), data.fates[fate])));
}
/** What ended, best first: the answers that search could choose from. */
function endings(nodes) {
  const ended = nodes.filter((node) => node.fate === 'ended').sort((one, other) => other.score - one.score);
  if (!ended.length) return [];
  const line = (node) => el('li', { class: node.won ? 'won' : null }, el('span', { class: 'number' }, `${number(node.score)} `),
    el('span', { class: 'label', dir: 'auto' }, way(nodes, node).slice(1, -1).map((one) => visible(one.label)).join(' ') || '(nothing)'));
  return [el('h3', { class: 'soft' }, 'What ended, best score first'), el('ol', { class: 'ended' }, ...ended.map(line))];
}
function climb(nodes, column, node, key) {
  if (key === 'ArrowLeft') return nodes[node.parent];
  if (key === 'ArrowRight') return node.children[0];
  return { ArrowUp: column[node.rank - 1], ArrowDown: column[node.rank + 1], Home: nodes[0] }[key];
}
/** Nodes tell their story when they are pointed at or have the focus; arrow keys climb. */
function enliven(picture, { nodes, steps }, edges, groups, told) {
  const of = (event) => nodes[event.target.closest('.node')?.dataset.node] ?? null;
  const hint = `${nodes.length - 1} hypotheses lived; of each its last token and its score, best on top: point at one`;
  const show = (node) => {
    const lit = new Set(node ? way(nodes, node).map((one) => one.index) : []);
    for (const one of [...edges, ...groups]) one.classList.toggle('lit', lit.has(+one.dataset.node));
    told.textContent = node ? story(nodes, node) : hint;
  };
  const onfocusin = (event) => {
    for (const one of groups) set(one, { tabindex: one === event.target ? 0 : -1 });
    show(of(event));
  };
  const onkeydown = (event) => {
    if (!/^(Arrow|Home)/.test(event.key)) return;
    event.preventDefault();
    const node = of(event), to = node && climb(nodes, steps.get(node.step), node, event.key);
    if (to) groups[to.index].focus();
  };
  set(picture, { onpointerover: (event) => show(of(event)), onpointerleave: () => show(null), onfocusin, onkeydown });
  groups.forEach((one, index) => set(one, { tabindex: index === 0 ? 0 : -1 }));
  show(null);
}
function drawBeam() {
  parts.beam.hidden = !answer().tree;
  if (parts.beam.hidden) return;
  const tree = placed(), { nodes, steps } = tree;
  const lowest = Math.max(1, ...nodes.map((node) => node.rank)), last = Math.max(...steps.keys());
  const width = 12 + last * BOX.across + BOX.width, height = BOX.top + (lowest + 1) * BOX.down;
  const numbers = [...steps.keys()].slice(1).map((step) => svg('text', { class: 'tiny', x: 6 + step * BOX.across, y: 14 }, `step ${step}`));
  const edges = nodes.filter((node) => node.parent !== null).sort((one, other) => one.won - other.won).map((node) => edge(nodes, node, lowest));
  const groups = nodes.map((node) => drawn(nodes, node));
  const told = el('p', { class: 'readout soft' });
  const picture = svg('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'group', 'aria-label': 'the beam as a tree', 'data-arrows': true },
    ...numbers, ...edges, ...groups);
  enliven(picture, tree, edges, groups, told);
  parts.beam.replaceChildren(el('h2', {}, 'How search found it'), legend(nodes), el('div', { class: 'scroll' }, picture), told, ...endings(nodes));
}

// --- the whole of one answer --------------------------------------------------------------------------------------

function change(wishes) {
  Object.assign(store, wishes);
  settle();
  drawControls();
  if ('words' in wishes) drawSaid();
  if ('words' in wishes || 'kind' in wishes) drawHeads();
  pressHeads();
  drawMap();
}
/** Show another answer. */
function drawAnswer(index) {
  Object.assign(store, { at: index, pinned: null, lit: null });
  if (Boolean(answer().picture) !== (store.view === 'picture')) store.view = answer().picture ? 'picture' : 'map';
  prepare(answer());
  settle();
  drawSaid();
  drawControls();
  drawHeads();
  pressHeads();
  drawMap();
  drawBeam();
  parts.none.hidden = Boolean(answer().attention.source);
}
/** The sections that an answer is drawn in, below what stands `before` them. */
function panes(...before) {
  for (const name of ['controls', 'map']) parts[name] = el('div', { class: name === 'map' ? 'looked' : name });
  parts.readout = el('p', { class: 'readout soft' });
  parts.none = el('p', { class: 'soft none' }, NONE);
  parts.said = el('section', { class: 'said' });
  parts.heads = el('div', { class: 'all' });
  parts.beam = el('section', { class: 'beam' });
  const looked = el('section', {}, el('h2', {}, 'Where it looked'), parts.none, parts.controls, parts.readout,
    el('div', { class: 'both' }, parts.map, parts.heads));
  return el('main', { onpointerover: point, onpointerleave: point, onfocusin: point, onclick: pin },
    ...before, parts.said, looked, parts.beam);
}
function header() {
  const notes = data.notes.map((note) => el('p', { class: 'soft', dir: 'auto' }, note));
  return el('header', { class: 'top' }, el('h1', { dir: 'auto' }, data.title), ...notes);
}
/** Arrows turn the page by one, unless something under the focus has a use for them. */
function turning(turn) {
  document.addEventListener('keydown', (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (event.target.closest('[data-arrows], input, select')) return;
    if (event.key === 'ArrowRight') turn(1);
    if (event.key === 'ArrowLeft') turn(-1);
  });
}
