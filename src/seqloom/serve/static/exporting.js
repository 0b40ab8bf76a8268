/* Pictures to take away: what is drawn as an SVG that stands alone, or as a PNG of it. Colours are written into it. */
import { svg } from './elements.js';
import { eased, short, visible } from './wording.js';

const INK = { paper: '#ffffff', ink: '#1c2126', soft: '#59636e', line: '#d9dde2', look: [8, 48, 107] };
const STYLES = ['fill', 'stroke', 'stroke-width', 'stroke-dasharray', 'stroke-opacity', 'opacity', 'font-size', 'font-weight', 'font-family'];
const FONT = 'ui-monospace, "DejaVu Sans Mono", monospace';
const MOST_CELLS = 20_000;

const mixed = (depth) => `rgb(${INK.look.map((value) => Math.round(255 + (value - 255) * depth)).join(' ')})`;
function label(text, attributes) {
  return svg('text', { fill: INK.ink, 'font-size': 13, 'font-family': FONT, ...attributes }, short(visible(text), 24));
}
function framed(width, height, title, ...children) {
  return svg('svg', { xmlns: 'http://www.w3.org/2000/svg', width, height, viewBox: `0 0 ${width} ${height}`, role: 'img' },
    svg('title', {}, title), svg('rect', { width, height, fill: INK.paper }),
    svg('text', { x: 16, y: 24, fill: INK.soft, 'font-size': 13, 'font-family': 'sans-serif' }, title), ...children);
}
const room = (units) => 14 + 8 * Math.max(3, ...units.map((unit) => Math.min(24, visible(unit.label).length)));

function mapPicture({ rows, columns, weights }, most, title) {
  const size = columns.length > 60 || rows.length > 60 ? 8 : 26, fine = size < 20;
  const left = fine ? 20 : room(rows) + 10, top = fine ? 44 : room(columns) + 40;
  const cells = weights.flatMap((row, r) => row.map((weight, c) => {
    const deep = eased(weight / most);
    return [svg('rect', { x: left + c * size, y: top + r * size, width: size - 1, height: size - 1, fill: deep ? mixed(deep) : '#eef0f3' }),
      ...(fine || weight < 0.095 ? [] : [svg('text', { x: left + (c + 0.5) * size, y: top + (r + 0.65) * size, 'text-anchor': 'middle', 'font-size': 11, 'font-family': FONT, fill: deep > 0.5 ? '#ffffff' : INK.ink }, Math.round(100 * weight))])];
  })).flat();
  const names = fine ? [] : [...rows.map((unit, r) => label(unit.label, { x: left - 8, y: top + (r + 0.68) * size, 'text-anchor': 'end' })),
    ...columns.map((unit, c) => label(unit.label, { transform: `translate(${left + (c + 0.65) * size} ${top - 8}) rotate(-90)` }))];
  return framed(left + columns.length * size + 16, top + rows.length * size + 16, title, ...cells, ...names);
}
function ribbonPicture({ rows, columns, weights }, title) {
  const step = 28, left = room(columns) + 10, right = left + 260, top = 44;
  const middle = (index) => top + step * (index + 0.5);
  const curves = weights.flatMap((row, r) => row.map((weight, c) => [weight, r, c])).filter(([weight]) => weight >= 0.02).sort((one, other) => one[0] - other[0]).slice(-3000)
    .map(([weight, r, c]) => svg('path', { d: `M${left} ${middle(c)}C${left + 130} ${middle(c)} ${left + 130} ${middle(r)} ${right} ${middle(r)}`, fill: 'none',
      stroke: mixed(1), 'stroke-width': 1 + 9 * weight, 'stroke-opacity': 0.12 + 0.88 * eased(weight) }));
  return framed(right + room(rows) + 10, top + step * Math.max(rows.length, columns.length) + 16, title, ...curves,
    ...columns.map((unit, c) => label(unit.label, { x: left - 8, y: middle(c) + 4, 'text-anchor': 'end' })),
    ...rows.map((unit, r) => label(unit.label, { x: right + 8, y: middle(r) + 4 })));
}
/** A drawing of the page with the style that it has there written into it. */
function copied(drawing, title) {
  const copy = drawing.cloneNode(true), from = [...drawing.querySelectorAll('*')], { width, height } = drawing.getBoundingClientRect();
  [...copy.querySelectorAll('*')].forEach((element, place) => {
    const style = getComputedStyle(from[place]);
    for (const name of STYLES) element.setAttribute(name, style.getPropertyValue(name));
    for (const name of ['class', 'tabindex', 'role']) element.removeAttribute(name);
  });
  const paper = getComputedStyle(drawing.closest('section')).backgroundColor;
  copy.prepend(svg('title', {}, title), svg('rect', { width, height, fill: paper }));
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  return copy;
}
/** What a view shows of its weights (`map`), or its beam. Null: there is nothing that could be drawn. */
export function pictureOf(view, what) {
  const { store, answer, parts } = view, title = `${short(answer.text, 60)} → ${short(answer.answer, 60)}`;
  if (what === 'beam') return parts.beam.hidden ? null : copied(parts.beam.querySelector('.scroll svg'), title);
  if (!store.weights || store.rows.length * store.columns.length > MOST_CELLS) return null;
  return store.view === 'ribbons' ? ribbonPicture(store, `${title}; ${view.where()}`) : mapPicture(store, view.darkest ?? 1, `${title}; ${view.where()}`);
}
const asBlob = (picture) => new Blob([new XMLSerializer().serializeToString(picture)], { type: 'image/svg+xml' });

async function png(picture) {
  const url = URL.createObjectURL(asBlob(picture));
  try {
    const image = new Image();
    await new Promise((resolve, reject) => {
      image.addEventListener('load', resolve);
      image.addEventListener('error', reject);
      image.src = url;
    });
    const canvas = document.createElement('canvas'), twice = Math.max(image.width, image.height) < 4000 ? 2 : 1;
    Object.assign(canvas, { width: twice * image.width, height: twice * image.height });
    canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve) => canvas.toBlob(resolve, 'image/png'));
  } finally {
    URL.revokeObjectURL(url);
  }
}
/** A file for the person; gives its name. */
export async function save(picture, kind, name) {
  const blob = kind === 'png' ? await png(picture) : asBlob(picture);
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = `${name}.${kind}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  return link.download;
}
