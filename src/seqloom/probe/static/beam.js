/* The beam as a tree: every hypothesis that ever lived, its score and what became of it. */
import { el, set, svg } from './elements.js';
import { number, percent, probability, short, visible } from './wording.js';

const BOX = { width: 82, height: 32, across: 112, down: 40, top: 24 };
const MARKS = {
  ended: () => svg('rect', { class: 'mark full', x: -4, y: -4, width: 8, height: 8 }),
  'fell out': () => svg('path', { class: 'mark', d: 'M-4 -4L4 4M-4 4L4 -4' }),
  left: () => svg('circle', { class: 'mark', r: 4 }),
  'cut off': () => svg('path', { class: 'mark', d: 'M-3 -5V5M3 -5V5' }),
};
function placed(rows) {
  const nodes = rows.map(([parent, step, label, logProb, total, score, fate, won], index) =>
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
function story({ nodes, fates }, node) {
  const said = way(nodes, node).slice(1).map((one) => visible(one.label)).join(' ');
  if (!said) return 'the beginning';
  const won = node.won && !node.children.length ? 'the answer; ' : '';
  const numbers = `score ${number(node.score)}, this token ${percent(probability(node.logProb))}, place ${node.rank + 1} of its step`;
  return `\u2068${said}\u2069: ${numbers}; ${won}${fates[node.fate]}`;
}
function edge(nodes, node, lowest) {
  const from = nodes[node.parent], x = from.x + BOX.width, half = BOX.height / 2, bend = (node.x - x) / 2;
  const thickness = 1 + 3 * (1 - node.rank / lowest) + (node.won ? 1 : 0);
  return svg('path', { class: `edge${node.won ? ' won' : ''}`, 'data-node': node.index, 'stroke-width': thickness,
    d: `M${x} ${from.y + half}C${x + bend} ${from.y + half} ${node.x - bend} ${node.y + half} ${node.x} ${node.y + half}` });
}
function drawn(tree, node) {
  const dead = !node.children.length && node.fate !== 'ended';
  const mark = MARKS[node.fate];
  const kind = `node${node.won ? ' won' : ''}${dead ? ' dead' : ''}`;
  const place = { 'data-node': node.index, transform: `translate(${node.x} ${node.y})` };
  const group = svg('g', { class: kind, role: 'button', 'aria-label': story(tree, node), ...place },
    svg('rect', { width: BOX.width, height: BOX.height, rx: 5 }),
    svg('text', { class: 'name', x: 6, y: 14, direction: 'ltr' }, short(visible(node.label), 9)));
  if (node.parent !== null) group.append(svg('text', { class: 'tiny', x: 6, y: 26 }, number(node.score, 2)));
  if (mark) group.append(svg('g', { transform: `translate(${BOX.width - 10} 22)` }, mark()));
  return group;
}
function legend({ nodes, fates }) {
  const seen = Object.keys(MARKS).filter((fate) => nodes.some((node) => node.fate === fate));
  const sign = (...shapes) => svg('svg', { viewBox: '-7 -7 14 14', 'aria-hidden': 'true' }, ...shapes);
  return el('div', { class: 'fates' }, el('span', {}, sign(svg('path', { class: 'way', d: 'M-7 0H7' })), 'the way to the answer'),
    ...seen.map((fate) => el('span', {}, sign(MARKS[fate]()), fates[fate])));
}
/** What ended, best first: the answers that search could choose from. */
function endings({ nodes }) {
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
/** Nodes tell their story when they are pointed at or have the focus; arrow keys climb; a click follows one. */
function enliven(picture, tree, edges, groups, told, follow) {
  const { nodes, steps } = tree;
  const of = (event) => nodes[event.target.closest('.node')?.dataset.node] ?? null;
  const hint = `${nodes.length - 1} hypotheses lived; of each its last token and its score, best on top: point at one${follow ? ', click to follow it' : ''}`;
  const show = (node) => {
    const lit = new Set(node ? way(nodes, node).map((one) => one.index) : []);
    for (const one of [...edges, ...groups]) one.classList.toggle('lit', lit.has(+one.dataset.node));
    told.textContent = node ? story(tree, node) : hint;
  };
  const chosen = (event) => {
    const node = of(event);
    if (!node || !follow) return;
    const path = way(nodes, node).slice(1);
    follow(path.map((one) => one.label), node.fate === 'ended');
  };
  const onfocusin = (event) => {
    for (const one of groups) set(one, { tabindex: one === event.target ? 0 : -1 });
    show(of(event));
  };
  const onkeydown = (event) => {
    if (event.key === 'Enter' || event.key === ' ') {
      if (follow) event.preventDefault();
      return chosen(event);
    }
    if (!/^(Arrow|Home)/.test(event.key)) return;
    event.preventDefault();
    const node = of(event), to = node && climb(nodes, steps.get(node.step), node, event.key);
    if (to) groups[to.index].focus();
  };
  set(picture, { onpointerover: (event) => show(of(event)), onpointerleave: () => show(null), onfocusin, onkeydown, onclick: chosen });
  groups.forEach((one, index) => set(one, { tabindex: index === 0 ? 0 : -1 }));
  show(null);
}
/** All of it: `rows` as a page gets them, `fates` in words, and what to do with a hypothesis that is to be followed. */
export function beamTree(rows, fates, follow = null) {
  const tree = { ...placed(rows), fates }, { nodes, steps } = tree;
  const lowest = Math.max(1, ...nodes.map((node) => node.rank)), last = Math.max(...steps.keys());
  const width = 12 + last * BOX.across + BOX.width, height = BOX.top + (lowest + 1) * BOX.down;
  const numbers = [...steps.keys()].slice(1).map((step) => svg('text', { class: 'tiny', x: 6 + step * BOX.across, y: 14 }, `step ${step}`));
  const edges = nodes.filter((node) => node.parent !== null).sort((one, other) => one.won - other.won).map((node) => edge(nodes, node, lowest));
  const groups = nodes.map((node) => drawn(tree, node));
  const told = el('p', { class: 'readout soft' });
  const picture = svg('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'group', 'aria-label': 'the beam as a tree', 'data-arrows': true },
    ...numbers, ...edges, ...groups);
  enliven(picture, tree, edges, groups, told, follow);
  return [el('h2', {}, 'How search found it'), legend(tree), el('div', { class: 'scroll' }, picture), told, ...endings(tree)];
}
