/* The report of a run: scores, curves, lengths, diagnoses, the map of states, and a page per sentence. */
import { el, header, svg, turning } from './elements.js';
import { View } from './view.js';
import { percent, short, visible, whole } from './wording.js';

const data = JSON.parse(document.getElementById('data').textContent);
const view = new View(data), parts = {};

const told = data.report, { sentences, systems } = told;
const digits = (value, most = 4) => (value === null ? '–' : Number(value.toPrecision(most)).toLocaleString('en', { maximumFractionDigits: 6 }));
const fixed = (value, places = 2) => (value === null || value === undefined ? '–' : value.toFixed(places));
const grouped = (value) => value.toLocaleString('en');
const address = (index) => `#sentence-${index + 1}`;
const link = (index, ...children) => el('a', { href: address(index), dir: 'auto' }, ...children);

// --- tables ---------------------------------------------------------------------------------------------------------

/**
 * A table that its head sorts. A column has a name, `of` (row -> what it is sorted by) and maybe `cell` (row -> child),
 * `number`, `wide` (left out on a phone). `rows` gives the rows to show; `drawn` hears them in their order.
 */
function sortable(name, columns, rows, { most = Infinity, by = null, drawn = () => {} } = {}) {
  const state = { by, down: by !== null, shown: most };
  const body = el('tbody'), more = el('button', { type: 'button', class: 'plain' }), rest = el('p', { class: 'soft paper' });
  const kind = (column) => [column.number ? 'figure' : null, column.wide ? 'wide' : null].filter(Boolean).join(' ') || null;
  const heads = columns.map((column, place) => {
    const sort = () => {
      Object.assign(state, { by: place, down: state.by === place ? !state.down : Boolean(column.number), shown: most });
      draw();
    };
    return el('th', { scope: 'col', class: kind(column) }, el('button', { type: 'button', class: 'sort', onclick: sort }, column.name));
  });
  function ordered() {
    if (state.by === null) return rows();
    const { of } = columns[state.by], sign = state.down ? -1 : 1;
    const missing = (value) => value === null || value === undefined;
    const order = (one, other) => {
      const [a, b] = [of(one), of(other)];
      if (missing(a) || missing(b)) return missing(a) - missing(b);
      return sign * (typeof a === 'number' ? a - b : String(a).localeCompare(String(b)));
    };
    return [...rows()].sort(order);
  }
  function draw() {
    const all = ordered(), shown = all.slice(0, state.shown);
    body.replaceChildren(...shown.map((row) => el('tr', {}, ...columns.map((column) =>
      el('td', { class: kind(column) }, column.cell ? column.cell(row) : String(column.of(row) ?? '–'))))));
    heads.forEach((head, place) => {
      if (state.by === place) head.setAttribute('aria-sort', state.down ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
    more.hidden = all.length <= shown.length;
    more.textContent = `show ${grouped(Math.min(most, all.length - shown.length))} more of ${grouped(all.length - shown.length)}`;
    rest.textContent = more.hidden ? '' : `${grouped(shown.length)} of ${grouped(all.length)} are on paper; the file itself shows all`;
    drawn(all);
  }
  more.addEventListener('click', () => { state.shown += most; draw(); });
  draw();
  const table = el('table', { class: 'rows', 'aria-label': name }, el('thead', {}, el('tr', {}, ...heads)), body);
  return { element: el('div', { class: 'listed' }, el('div', { class: 'scroll' }, table), more, rest), draw: () => { state.shown = most; draw(); } };
}
function bar(share) {
  return el('span', { class: 'share' }, el('span', { class: 'bar' }, el('i', { '--w': Math.max(0, Math.min(1, share)) })), el('span', {}, percent(share)));
}

// --- plots ----------------------------------------------------------------------------------------------------------

const MARKERS = [
  (x, y) => svg('circle', { cx: x, cy: y, r: 4 }),
  (x, y) => svg('rect', { x: x - 3.5, y: y - 3.5, width: 7, height: 7 }),
  (x, y) => svg('path', { d: `M${x} ${y - 5}L${x + 5} ${y + 4}H${x - 5}Z` }),
  (x, y) => svg('path', { d: `M${x} ${y - 5}L${x + 5} ${y}L${x} ${y + 5}L${x - 5} ${y}Z` }),
];
const DASHES = [null, '7 4', '2 3', '9 3 2 3'];
const style = (place) => place % MARKERS.length;

/** Round numbers that cover a span. */
function ticks(low, high, count = 5) {
  const rough = (high - low || Math.abs(high) || 1) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough);
  const found = [];
  for (let at = Math.floor(low / step); at * step < high + step * 0.999; at += 1) found.push(Number((at * step).toPrecision(12)));
  return found.length > 1 ? found : [...found, found[0] + step];
}
function sign(place) {
  return svg('svg', { viewBox: '0 0 34 14', class: `sign s${style(place)}`, 'aria-hidden': 'true' },
    svg('path', { class: 'line', d: 'M1 7H33', 'stroke-dasharray': DASHES[style(place)] }), MARKERS[style(place)](17, 7));
}
/** Draw for the width that a box has, and anew when that changes; a hidden one has none. */
function fitted(box, draw) {
  let width = 0;
  new ResizeObserver(([{ contentRect }]) => {
    const now = Math.round(contentRect.width);
    if (now === 0 || now === width) return;
    width = now;
    draw(width);
  }).observe(box);
}
/** A figure that is drawn for the width it has, with its legend, and its numbers as a table to open. */
function figure(title, names, draw, numbers) {
  const box = el('div', { class: 'plot' });
  const legend = names.length > 1 ? [el('div', { class: 'fates' }, ...names.map((name, place) => el('span', {}, sign(place), name)))] : [];
  fitted(box, (width) => box.replaceChildren(draw(width)));
  return el('figure', {}, el('figcaption', {}, title), ...legend, box,
    ...(numbers ? [el('details', {}, el('summary', {}, 'the numbers'), numbers)] : []));
}
/**
 * Series of points {x, y, low, high, label} over axes. `x` and `y` are lists of [place, text]; `end` is where x ends;
 * `spread` moves series apart so that their intervals do not hide each other; `upright` is a step to mark, `diagonal`
 * the line y = x.
 */
function chart(width, title, { series, x, y, xName, yName, end = null, spread = 0, upright = null, diagonal = false, height = 260 }) {
  const deep = x.some(([, text]) => text.includes('\n')) ? 16 : 0;
  const inner = { left: 52, right: width - 22, top: 12, bottom: height - 40 - deep };
  const ends = (axis) => [axis[0][0], axis.at(-1)[0]];
  const [left, last] = ends(x), right = end ?? last, [low, high] = ends(y);
  const across = (value) => inner.left + (inner.right - inner.left) * (value - left) / (right - left || 1);
  const down = (value) => inner.bottom - (inner.bottom - inner.top) * (value - low) / (high - low || 1);
  const every = Math.max(1, Math.ceil(x.length * 46 / (inner.right - inner.left)));
  const grid = [
    ...y.map(([at, text]) => svg('g', {}, svg('path', { class: 'grid', d: `M${inner.left} ${down(at)}H${inner.right}` }),
      svg('text', { x: inner.left - 7, y: down(at) + 4, 'text-anchor': 'end' }, text))),
    ...x.filter((_, place) => place % every === 0).map(([at, text]) => svg('g', {}, ...text.split('\n').map((line, row) =>
      svg('text', { class: row ? 'tiny' : null, x: across(at), y: inner.bottom + 17 + 14 * row, 'text-anchor': 'middle' }, line)))),
    svg('path', { class: 'axis', d: `M${inner.left} ${inner.bottom}H${inner.right}` }),
    svg('text', { class: 'tiny', x: (inner.left + inner.right) / 2, y: height - 5, 'text-anchor': 'middle' }, xName),
  ];
  if (diagonal) grid.push(svg('path', { class: 'guide', d: `M${across(0)} ${down(0)}L${across(1)} ${down(1)}` }));
  if (upright !== null && upright >= left && upright <= right) {
    grid.push(svg('path', { class: 'guide', d: `M${across(upright)} ${inner.top}V${inner.bottom}` }));
    const late = across(upright) > (inner.left + inner.right) / 2;
    grid.push(svg('text', { class: 'tiny', x: across(upright) + (late ? -5 : 5), y: inner.top + 10, 'text-anchor': late ? 'end' : 'start' }, 'best'));
  }
  const lines = series.map(({ name, points }, place) => {
    const shift = spread * (place - (series.length - 1) / 2);
    const at = points.filter((point) => point.y !== null).map((point) => ({ ...point, px: across(point.x) + shift, py: down(point.y) }));
    const whiskers = at.filter((point) => point.low !== undefined && point.low !== null).map((point) => svg('path', { class: 'whisker',
      d: `M${point.px} ${down(point.low)}V${down(point.high)}M${point.px - 4} ${down(point.low)}h8M${point.px - 4} ${down(point.high)}h8` }));
    const marks = at.length > 40 ? [] : at.map((point) => {
      const mark = MARKERS[style(place)](point.px, point.py);
      mark.append(svg('title', {}, `${name}: ${point.label ?? digits(point.y)}`));
      return mark;
    });
    const way = at.map((point, index) => `${index ? 'L' : 'M'}${point.px.toFixed(1)} ${point.py.toFixed(1)}`).join('');
    return svg('g', { class: `s${style(place)}` },
      ...(way ? [svg('path', { class: 'line', d: way, 'stroke-dasharray': DASHES[style(place)] })] : []), ...whiskers, ...marks);
  });
  return svg('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `${title}; ${yName}` }, ...grid, ...lines);
}
const axis = (low, high, count) => ticks(low, high, count).map((at) => [at, digits(at, 6)]);

// --- what was trained and judged ------------------------------------------------------------------------------------

function section(id, title, ...children) {
  return children.length ? el('section', { id, tabindex: -1 }, el('h2', {}, title), ...children) : null;
}
function facts() {
  return el('dl', { class: 'facts' }, ...told.facts.map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', { dir: 'auto' }, value))));
}
function scores() {
  const rows = systems.flatMap((system) => [
    ...system.scores.map((score) => ({ ...score, system: system.name })),
    ...(system.perplexity === null ? [] : [{ name: 'perplexity', value: system.perplexity, higher_is_better: false, system: system.name }])]);
  rows.sort((one, other) => rows.findIndex((row) => row.name === one.name) - rows.findIndex((row) => row.name === other.name));
  const columns = [
    { name: 'metric', of: (row) => row.name },
    ...(systems.length > 1 ? [{ name: 'system', of: (row) => row.system }] : []),
    { name: 'value', of: (row) => row.value, cell: (row) => fixed(row.value), number: true },
    { name: '95 % interval', of: (row) => row.interval?.low, number: true,
      cell: (row) => (row.interval ? `${fixed(row.interval.low)} to ${fixed(row.interval.high)}` : '') },
    { name: 'better', of: (row) => (row.higher_is_better ? 'higher' : 'lower'), wide: true },
  ];
  const signatures = systems[0].scores.map((score) => el('li', {}, el('code', {}, score.signature)));
  return section('scores', 'Scores', sortable('scores', columns, () => rows).element, facts(),
    el('details', {}, el('summary', {}, 'signatures'), el('ul', { class: 'soft' }, ...signatures)));
}
function learning() {
  const panels = [...new Set(told.curves.map((curve) => curve.panel))];
  const figures = panels.map((panel) => {
    const curves = told.curves.filter((curve) => curve.panel === panel);
    const all = curves.flatMap((curve) => curve.points).filter(([, value]) => value !== null);
    if (!all.length) return null;
    const values = all.map(([, value]) => value), last = Math.max(...all.map(([step]) => step));
    const series = curves.map(({ name, points }) => ({ name, points: points.map(([x, y]) => ({ x, y, label: `${digits(y)} at step ${grouped(x)}` })) }));
    const y = axis(Math.min(...values, panel === 'learning rate' ? 0 : Infinity), Math.max(...values), 4);
    const draw = (width) => chart(width, panel, { series, x: axis(0, last, width < 420 ? 3 : 5).filter(([step]) => step <= last), end: last, y, xName: 'step', yName: panel, upright: told.best_step, height: 210 });
    return figure(panel, curves.map((curve) => curve.name), draw);
  }).filter(Boolean);
  return section('learning', 'Learning curves', ...(figures.length ? [el('div', { class: 'figures' }, ...figures)] : []));
}
function lengths() {
  const figures = systems[0].scores.map(({ name }) => {
    const known = new Map(systems.flatMap((system) => system.by_length[name] ?? []).map((bucket) => [bucket.label, bucket]));
    const buckets = [...known.values()].sort((one, other) => one.low - other.low);
    if (!buckets.length) return null;
    const series = systems.map((system) => ({ name: system.name, points: (system.by_length[name] ?? []).map((bucket) => ({
      x: buckets.findIndex((one) => one.label === bucket.label), y: bucket.value, low: bucket.interval.low, high: bucket.interval.high,
      label: `${fixed(bucket.value)} (${fixed(bucket.interval.low)} to ${fixed(bucket.interval.high)}), ${grouped(bucket.count)} sentences of ${bucket.label} ${systems[0].length_unit}` })) }));
    const all = series.flatMap(({ points }) => points.flatMap(({ y, low, high }) => [y, low, high]));
    const x = [[-0.5, ''], ...buckets.map((bucket, place) => [place, `${bucket.label}\nn ${grouped(bucket.count)}`]), [buckets.length - 0.5, '']];
    const draw = (width) => chart(width, `${name} by source length`, { series, x, y: axis(Math.min(0, ...all), Math.max(...all), 4),
      xName: `source length, ${systems[0].length_unit}; bars are 95 % intervals`, yName: name, spread: 12 });
    const columns = [{ name: 'length', of: (row) => row.low, cell: (row) => row.label }, { name: 'sentences', of: (row) => row.count, cell: (row) => grouped(row.count), number: true },
      ...series.map(({ name: system, points }) => {
        const of = (row) => points.find((point) => buckets[point.x].label === row.label);
        return { name: system, number: true, of: (row) => of(row)?.y, cell: (row) => (of(row) ? `${fixed(of(row).y)} (${fixed(of(row).low)} to ${fixed(of(row).high)})` : '–') };
      })];
    return figure(name, systems.map((system) => system.name), draw, sortable(`${name} by length`, columns, () => buckets).element);
  }).filter(Boolean);
  return section('lengths', 'Scores by source length', ...(figures.length ? [el('div', { class: 'figures' }, ...figures)] : []));
}
function frequencies() {
  const known = systems.filter((system) => system.by_frequency);
  if (!known.length) return null;
  const rows = known[0].by_frequency.map((row, place) => ({ ...row, all: known.map((system) => system.by_frequency[place]) }))
    .filter((row) => row.all.some((one) => one.wanted || one.produced));
  const shares = known.length > 1
    ? known.map((system, place) => ({ name: `F1 ${system.name}`, number: true, of: (row) => row.all[place].f1, cell: (row) => bar(row.all[place].f1 / 100) }))
    : [['precision', 'precision'], ['recall', 'recall'], ['F1', 'f1']].map(([name, key]) => ({ name, number: true, of: (row) => row[key], cell: (row) => bar(row[key] / 100) }));
  const columns = [{ name: 'times seen in training', of: (row) => row.low, cell: (row) => row.label },
    { name: 'wanted', of: (row) => row.wanted, cell: (row) => grouped(row.wanted), number: true }, ...shares];
  return section('words', 'Words by how often training saw them', sortable('words by frequency', columns, () => rows).element);
}
function labels() {
  const tables = systems.flatMap((system) => [['by_label', 'label'], ['by_span', 'type of span']]
    .filter(([key]) => system[key]?.length)
    .map(([key, name]) => sortable(`${name}s of ${system.name}`, [
      { name: systems.length > 1 ? `${name}, ${system.name}` : name, of: (row) => row.label },
      ...['wanted', 'produced'].map((count) => ({ name: count, number: true, of: (row) => row[count], cell: (row) => grouped(row[count]) })),
      ...[['precision', 'precision'], ['recall', 'recall'], ['F1', 'f1']]
        .map(([share, of]) => ({ name: share, number: true, of: (row) => row[of], cell: (row) => bar(row[of] / 100) }))], () => system[key]).element));
  const unseen = Object.entries(systems[0].unseen_labels ?? {}).map(([label, count]) => `${label} ${grouped(count)}`);
  const note = unseen.length ? [el('p', { class: 'soft' }, `Wanted, but not in the training data, so that no output is right there: ${unseen.join(', ')}.`)] : [];
  return tables.length ? section('labels', 'How well each label is found', ...tables, ...note) : null;
}
function confidence() {
  const known = systems.filter((system) => system.decoding?.confidence.bins.length);
  if (!known.length) return null;
  const series = known.map((system) => ({ name: system.name, points: system.decoding.confidence.bins.map((bin) =>
    ({ x: bin.confidence, y: bin.accuracy, label: `promised ${percent(bin.confidence)}, right ${percent(bin.accuracy)}, ${grouped(bin.count)} outputs` })) }));
  const shares = [0, 0.2, 0.4, 0.6, 0.8, 1].map((at) => [at, whole(at)]);
  const draw = (width) => chart(Math.min(width, 460), 'confidence, promised and true', { series, x: shares, y: shares, xName: 'promised', yName: 'right', diagonal: true });
  const notes = known.map(({ name, decoding: { confidence: of } }) => el('p', { class: 'soft' },
    `${systems.length > 1 ? `${name}: ` : ''}expected calibration error ${percent(of.ece)}; ${percent(of.right)} of the outputs are right (${of.criterion}), ${percent(of.mean)} were promised.`));
  return section('confidence', 'Do confidences keep their word?', figure('share of right outputs by confidence', known.map((system) => system.name), draw), ...notes);
}
function dataset() {
  const { sets, judged, findings } = told.data;
  if (!judged) return null;
  const trained = sortable('training data', [
    { name: 'set', of: (row) => row.name },
    { name: 'pairs', of: (row) => row.kept, cell: (row) => grouped(row.kept), number: true },
    { name: 'left out', of: (row) => Object.values(row.skipped).reduce((sum, count) => sum + count, 0), number: true,
      cell: (row) => Object.entries(row.skipped).map(([why, count]) => `${grouped(count)} ${why}`).join(', ') || '0' }], () => sets);
  const sides = sortable('judged texts', [
    { name: `characters of ${grouped(judged.pairs)} judged`, of: (row) => row.side },
    ...['median', 'p95', 'max'].map((name) => ({ name, number: true, of: (row) => row[name], cell: (row) => grouped(row[name]) })),
    { name: 'different ones', number: true, of: (row) => row.alphabet, cell: (row) => grouped(row.alphabet) }],
    () => ['source', 'target'].map((side) => ({ side, ...judged[side] })));
  const found = findings.map((one) => el('li', {}, el('b', {}, `${one.severity}: ${one.set}: ${one.kind}`), ` (${grouped(one.count)} times): ${one.why}`,
    ...(one.where.length ? [el('div', { class: 'soft' }, one.where.join(', '))] : [])));
  return section('dataset', 'The data', ...(sets.length ? [trained.element] : []), sides.element,
    found.length ? el('ul', { class: 'findings' }, ...found) : el('p', { class: 'soft' }, 'Nothing suspicious was found.'));
}

// --- diagnoses and the sentences ------------------------------------------------------------------------------------

const MEANT = {
  right: 'equals a reference, as the target side writes it',
  'model error': 'the model itself prefers its output to the reference',
  'search error': 'the reference scores higher: search did not find it',
  'out of reach': 'search could not have said the reference',
  'passed over': 'empty, too long, or answered in parts',
};
const wanted = { text: '', verdict: '', symptom: '' };
let order = sentences.map((_, index) => index);

function matching() {
  const text = wanted.text.toLocaleLowerCase();
  return sentences.map((_, index) => index).filter((index) => {
    const one = sentences[index];
    if (wanted.verdict && one.verdict !== wanted.verdict) return false;
    if (wanted.symptom && !one.symptoms.includes(wanted.symptom)) return false;
    return !text || [one.source, one.output, ...one.references].some((part) => part.toLocaleLowerCase().includes(text));
  });
}
/** Show those of one verdict or symptom in the table below. */
function only(wish) {
  Object.assign(wanted, { text: '', verdict: '', symptom: '' }, wish);
  for (const [name, control] of Object.entries(parts.filters)) control.value = wanted[name];
  parts.table.draw();
  location.hash = '#sentences';
  document.getElementById('sentences').scrollIntoView();
}
const worse = (one, other) => (told.higher_is_better ? 1 : -1) * (sentences[one].value - sentences[other].value);
function examples(has) {
  const places = sentences.map((_, index) => index).filter((index) => has(sentences[index])).sort(worse).slice(0, 5);
  return el('span', { class: 'links' }, ...places.map((index) => set(link(index, String(index + 1)), { title: sentences[index].source })));
}
function tally(name, rows, filter, has) {
  const choose = (row) => el('button', { type: 'button', class: 'as-link', title: MEANT[row[name]] ?? '', onclick: () => only({ [filter]: row[name] }) }, row[name]);
  return sortable(name, [
    { name, of: (row) => row[name], cell: choose },
    { name: 'outputs', of: (row) => row.count, cell: (row) => grouped(row.count), number: true },
    { name: 'share', of: (row) => row.share, cell: (row) => bar(row.share), number: true },
    { name: 'such as', of: (row) => row.count, cell: (row) => examples((one) => has(one, row[name])) }], () => rows).element;
}
function diagnosis() {
  const found = told.diagnosis;
  if (!found) return null;
  const seen = found.symptoms.filter((row) => row.count);
  const glosses = found.verdicts.filter((row) => row.count).map((row) => el('div', {}, el('dt', {}, row.verdict), el('dd', {}, MEANT[row.verdict])));
  const parting = found.mean_rank === null ? [] : [el('p', { class: 'soft' },
    `Where output and reference part, the right token has rank ${digits(found.mean_rank, 3)} on average, ${digits(found.median_rank, 3)} as the median`
    + `${found.mean_mass === null ? '' : `; ${percent(found.mean_mass)} of the attention lay on its source word`}.`)];
  return section('diagnosis', 'Diagnosis',
    el('div', { class: 'figures' }, tally('verdict', found.verdicts, 'verdict', (one, verdict) => one.verdict === verdict),
      ...(seen.length ? [tally('symptom', seen, 'symptom', (one, symptom) => one.symptoms.includes(symptom))] : [])),
    el('dl', { class: 'facts' }, ...glosses), ...parting);
}
function card(index) {
  const { source, output, references, value } = sentences[index];
  return el('a', { class: 'card', href: address(index) }, el('b', {}, `${told.metric} ${fixed(value, 1)}`),
    el('span', { class: 'soft', dir: 'auto' }, source), el('span', { dir: 'auto' }, output || '(nothing)'),
    el('span', { class: 'soft', dir: 'auto' }, `wanted: ${references[0] ?? ''}`));
}
function gallery() {
  const column = (title, places) => el('div', { class: 'cards' }, el('h3', {}, title), ...places.map(card));
  const worst = told.worst.length ? [column('worst', told.worst)] : [];
  return section('gallery', 'Best and worst', el('div', { class: 'figures' }, column('best', told.best), ...worst));
}
function listed() {
  const columns = [
    { name: '#', of: (index) => index, cell: (index) => String(index + 1), number: true, wide: true },
    { name: 'source, output', of: (index) => sentences[index].source, cell: (index) => el('div', { class: 'texts' },
      link(index, sentences[index].source || '(empty)'), el('span', { dir: 'auto' }, sentences[index].output || '(nothing)')) },
    { name: told.metric, of: (index) => sentences[index].value, cell: (index) => fixed(sentences[index].value, 1), number: true },
    { name: 'log p a token', of: (index) => sentences[index].sureness, cell: (index) => fixed(sentences[index].sureness), number: true, wide: true },
    { name: 'length', of: (index) => sentences[index].length, number: true, wide: true },
    { name: 'verdict', of: (index) => sentences[index].verdict, wide: true, cell: (index) => sentences[index].verdict },
    { name: 'why', of: (index) => sentences[index].why.join(', ') || null, wide: true, cell: (index) => sentences[index].why.join(', ') },
  ];
  parts.table = sortable('sentences', columns, matching, { most: 25, drawn: (all) => {
    order = all;
    if (parts.many) parts.many.textContent = all.length === sentences.length ? `${grouped(all.length)} sentences` : `${grouped(all.length)} of ${grouped(sentences.length)}`;
  } });
  const change = (name) => (event) => { wanted[name] = event.target.value; parts.table.draw(); };
  const options = (name, values) => el('select', { 'aria-label': name, onchange: change(name) },
    el('option', { value: '' }, `any ${name}`), ...values.map((value) => el('option', { value }, value)));
  const seen = (of) => [...new Set(sentences.flatMap(of))].filter(Boolean).sort();
  parts.filters = {
    text: el('input', { type: 'search', placeholder: 'find a text', 'aria-label': 'find a text', oninput: change('text') }),
    verdict: options('verdict', seen((one) => [one.verdict])),
    symptom: options('symptom', seen((one) => one.symptoms)),
  };
  parts.many = el('span', { class: 'soft', role: 'status' });
  parts.table.draw();
  return section('sentences', 'All sentences', el('div', { class: 'controls' }, ...Object.values(parts.filters), parts.many), parts.table.element);
}

/** Attention is no explanation by itself: what was measured, and a caution where measures disagree. */
function faith() {
  const kind = (line) => (line.startsWith('caution') ? 'caution' : 'soft');
  return section('attention', 'May attention be read as a reason?', ...told.faithfulness.map((line) => el('p', { class: kind(line) }, line)));
}

// --- the map of states ----------------------------------------------------------------------------------------------

const COLOURS = {
  length: { name: 'source length', of: (one) => one.length },
  value: { name: told.metric, of: (one) => one.value },
  sureness: { name: 'log p a token', of: (one) => one.sureness },
};
let colour = 'length';

function states() {
  if (!told.variance) return null;
  const places = sentences.map((_, index) => index).filter((index) => sentences[index].point);
  const readout = el('p', { class: 'readout soft' }), hint = 'Each point is a source; point at one, or use the arrow keys; a click opens it.';
  const [xs, ys] = [0, 1].map((side) => places.map((index) => sentences[index].point[side]));
  const span = (values) => [Math.min(...values), Math.max(...values)];
  const [[left, right], [low, high]] = [span(xs), span(ys)];
  places.sort((one, other) => sentences[one].point[0] - sentences[other].point[0]);
  const shades = el('span', { class: 'scale' });
  const box = el('div', { class: 'plot states' });
  const show = (event) => {
    const index = event.target.closest?.('[data-index]')?.dataset.index;
    readout.textContent = index === undefined ? hint
      : `${+index + 1}: “\u2068${sentences[index].source}\u2069”, ${told.metric} ${fixed(sentences[index].value, 1)}, length ${sentences[index].length}`;
  };
  function draw(width) {
    const { name, of } = COLOURS[colour], height = Math.round(Math.min(460, Math.max(300, 0.55 * width)));
    const values = places.map((index) => of(sentences[index])).filter((value) => value !== null).sort((one, other) => one - other);
    const [least, most] = [values[Math.floor(0.02 * values.length)], values[Math.ceil(0.98 * values.length) - 1]];
    const within = (value, from, to) => (to > from ? Math.max(0, Math.min(1, (value - from) / (to - from))) : 0.5);
    const dots = places.map((index) => {
      const { point: [x, y], source } = sentences[index], value = of(sentences[index]);
      return svg('a', { href: address(index), 'data-index': index, 'aria-label': `${index + 1}: ${source}` }, svg('circle', {
        cx: (12 + (width - 24) * within(x, left, right)).toFixed(1), cy: (height - 12 - (height - 24) * within(y, low, high)).toFixed(1),
        r: 5, '--w': value === null ? 0 : within(value, least, most) }));
    });
    const steps = [0, 0.25, 0.5, 0.75, 1].map((share) => el('i', { class: 'state', '--w': share }));
    shades.replaceChildren(`${name} ${digits(least, 3)}`, el('span', {}, ...steps), digits(most, 3));
    const picture = svg('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'group', 'aria-label': `map of ${places.length} states` }, ...dots);
    set(picture, { onpointerover: show, onpointerleave: show, onfocusin: show });
    return keyed(picture, dots);
  }
  /** Arrow keys walk from left to right; Tab enters and leaves the map. */
  function keyed(picture, dots) {
    dots.forEach((dot, place) => dot.setAttribute('tabindex', place ? -1 : 0));
    return set(picture, { 'data-arrows': true, onkeydown: (event) => {
      const at = dots.indexOf(document.activeElement);
      const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: dots.length - 1 }[event.key];
      if (at < 0 || to === undefined) return;
      event.preventDefault();
      if (!dots[to]) return;
      dots[at].setAttribute('tabindex', -1);
      dots[to].setAttribute('tabindex', 0);
      dots[to].focus();
    } });
  }
  const again = (width = box.clientWidth) => box.replaceChildren(draw(width));
  fitted(box, again);
  readout.textContent = hint;
  const choose = el('select', { 'aria-label': 'colour', onchange: (event) => { colour = event.target.value; again(); } },
    ...Object.entries(COLOURS).map(([key, { name }]) => el('option', { value: key }, name)));
  return section('states', 'Where the encoder puts its sources', el('div', { class: 'controls' }, el('label', {}, 'colour', choose), shades), box, readout,
    el('p', { class: 'soft' }, `Principal components of the states: across ${percent(told.variance[0])}, upwards ${percent(told.variance[1] ?? 0)} of their variance.`));
}

// --- the page of one sentence ---------------------------------------------------------------------------------------

let current = null; // the sentence that is shown; null: the report
const before = { hash: '', top: 0 }; // where the report was left

function judged(index) {
  const { where, references, value, sureness, verdict, line, why } = sentences[index];
  const rows = [
    ...references.map((text, place) => [references.length > 1 ? `reference ${place + 1}` : 'reference', text]),
    [told.metric, fixed(value, 1)],
    ...(sureness === null ? [] : [['log p a token', fixed(sureness, 3)]]),
    ...(verdict ? [['diagnosis', line || verdict]] : []),
    ...(why.length ? [['shown closely', why.join(', ')]] : []),
    ['from', where],
  ];
  const { source, output } = sentences[index];
  const texts = data.answers[index] ? [] : [['source', source], ['output', output || '(nothing)']];
  return el('dl', { class: 'judged' }, ...[...texts, ...rows].flatMap(([name, text]) => [el('dt', {}, name), el('dd', { dir: 'auto' }, text)]));
}
function showSentence(index) {
  if (current === null) before.top = window.scrollY;
  current = index;
  parts.overview.hidden = true;
  parts.sentence.hidden = false;
  parts.heading.textContent = `Sentence ${grouped(index + 1)} of ${grouped(sentences.length)}`;
  parts.home.setAttribute('href', before.hash || '#');
  parts.about.replaceChildren(judged(index));
  const has = Boolean(data.answers[index]);
  parts.look.hidden = !has;
  parts.bare.hidden = has;
  if (has) view.drawAnswer(index);
  window.scrollTo(0, 0);
  parts.heading.focus({ preventScroll: true });
}
function showReport() {
  const left = current !== null && location.hash === before.hash;
  current = null;
  parts.sentence.hidden = true;
  parts.overview.hidden = false;
  before.hash = location.hash;
  if (left) window.scrollTo(0, before.top);
  else if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}
function route() {
  const index = Number(/^#sentence-(\d+)$/.exec(location.hash)?.[1] ?? 0) - 1;
  if (sentences[index]) showSentence(index);
  else showReport();
}
/** The next one of the table, in its order; in that of the data where the table leaves this one out. */
function turnBy(by) {
  if (current === null) return;
  const at = order.indexOf(current);
  const next = at < 0 ? current + by : order[at + by];
  if (!sentences[next]) return;
  history.replaceState(null, '', address(next)); // so that Back leads to the report
  showSentence(next);
}
function sentencePage() {
  parts.heading = el('h2', { tabindex: -1 });
  parts.home = el('a', { class: 'plain', href: '#' }, 'back to the report');
  parts.about = el('div');
  parts.bare = el('p', { class: 'soft' }, 'There is no map of this one: it was passed over, answered in parts, or had no room left in this file.');
  parts.look = view.panes();
  const step = (by, text, name) => el('button', { type: 'button', class: 'plain', 'aria-label': name, onclick: () => turnBy(by) }, text);
  const bar = el('nav', { class: 'turn', 'aria-label': 'sentences' }, parts.home, step(-1, '←', 'previous'), step(1, '→', 'next'));
  return el('div', { class: 'frame one', hidden: true }, bar, el('section', {}, parts.heading, parts.about, parts.bare), parts.look);
}
function overview() {
  const all = [scores(), lengths(), learning(), diagnosis(), gallery(), faith(), states(), labels(), frequencies(), confidence(), listed(), dataset()].filter(Boolean);
  const contents = el('nav', { class: 'contents', 'aria-label': 'contents' },
    ...all.map((one) => el('a', { href: `#${one.id}` }, one.querySelector('h2').textContent)));
  return el('div', { class: 'frame' }, contents, el('main', {}, ...all));
}

parts.overview = overview();
parts.sentence = sentencePage();
document.body.prepend(header(data), parts.overview, parts.sentence);
turning(turnBy);
window.addEventListener('hashchange', route);
route();
