/* Draws one answer: what was read and said, where it looked, how search found it. Data becomes text nodes and
   attributes, never markup. `page.js` and `report.js` show answers of a file; the served page gives `actions` besides:
   what to do when a word is to be another, attention elsewhere, a head masked, a hypothesis followed. */
import { beamTree } from './beam.js';
import { el, roving } from './elements.js';
import { allHeads, brightest, darkest, heatMap, pictures, ribbons, seen, signal } from './maps.js';
import { CAME, KINDS, MEAN, matrix, merges, prepare, unitsOf } from './weights.js';
import { direction, eased, number, percent, probability, quoted, shade, short, veiled, visible, whole } from './wording.js';

const NONE = 'This model has no attention to the source: what it read reaches it through its states alone.';
const UNSAID = ['<pad>', '<unk>', '<bos>', '<sep>', '<mask>']; // that nobody can choose to say
const UNKNOWN = 'unknown to the model: it reads <unk>';
let views = 0; // so that controls of two views are told apart

const same = (one, other) => ['row', 'column', 'output', 'source'].every((name) => one?.[name] === other?.[name]);
function scale(name, low, high) {
  const shades = [0, 0.25, 0.5, 0.75, 1].map((share) => el('i', { class: name, '--w': eased(share), '--d': share, '--v': veiled(share) }));
  return el('span', { class: 'scale', 'aria-hidden': 'true' }, low, el('span', {}, ...shades), high);
}

/** `data.answers` are what is shown, one at a time; `actions` may be empty; `brief` leaves the texts to who asked. */
export class View {
  constructor(data, actions = {}, brief = false) {
    Object.assign(this, { data, actions, brief, parts: {}, id: views += 1, shown: null });
    // The one store: what is looked at. `pinned` was clicked, `lit` is under the pointer or has the focus.
    this.store = {
      at: 0, kind: 'source', layer: Infinity, head: MEAN, view: 'map', words: false, moving: false, pinned: null, lit: null,
      rows: [], columns: [], weights: null,
    };
  }
  get answer() { return this.data.answers[this.store.at]; }
  units(side, count) { return unitsOf(side, this.store.words, count); }

  /** Choose what can be chosen of this answer, and compute what is drawn of it. */
  settle() {
    const { store, answer } = this;
    const kinds = Object.keys(KINDS).filter((kind) => answer.attention[kind]);
    if (!kinds.includes(store.kind)) store.kind = kinds[0] ?? 'source';
    const stack = answer.attention[store.kind], kind = KINDS[store.kind];
    store.rows = this.units(answer[kind.rows], stack?.shape[2]);
    store.columns = this.units(answer[kind.columns], stack?.shape[3]);
    store.weights = null;
    if (!this.canMove) store.moving = false;
    if (!stack) return;
    store.layer = Math.min(store.layer, stack.shape[0] - 1);
    store.head = Math.min(store.head, stack.shape[1] - 1);
    store.weights = matrix(stack, store.layer, store.head, store.rows, store.columns);
  }
  where() {
    const { answer, store } = this;
    if (answer.glimpse) return 'the last layer, mean of its heads';
    if (KINDS[store.kind].whole === CAME.whole) return `by ${this.data.method}`;
    const layer = `layer ${store.layer + 1}`;
    if (answer.attention[store.kind].shape[1] === 1) return layer;
    return `${layer}, ${store.head === MEAN ? 'mean of the heads' : `head ${store.head + 1}`}`;
  }

  // --- what was read and said -------------------------------------------------------------------------------------

  token(unit, index, side, more = {}) {
    const odd = unit.unknown ? { class: 'token unknown', title: `${unit.label}: ${UNKNOWN}`, 'aria-label': `${visible(unit.label)}, ${UNKNOWN}` } : {};
    const usual = { type: 'button', class: 'token', dir: 'auto', 'data-side': side, 'data-unit': index, title: unit.label, ...odd };
    return el('button', { ...usual, ...more }, visible(unit.label));
  }
  sureness(unit) {
    return probability(unit.places.reduce((sum, place) => {
      const value = this.answer.steps[place].log_prob;
      return sum === null || value === null ? null : sum + value;
    }, 0));
  }
  saidToken(unit, index) {
    const sure = this.sureness(unit);
    const unreal = this.answer.truncated && unit.places[0] === this.answer.steps.length - 1;
    const name = `${visible(unit.label)}, probability ${percent(sure)}${unreal ? ', not said: the answer was cut off' : ''}`;
    return this.token(unit, index, 'output', { class: `token doubted${unreal ? ' unreal' : ''}`, '--d': 1 - sure, 'aria-label': name });
  }
  drawSaid() {
    const { text, extras, answer: said, log_prob: sum, truncated, between, source, output } = this.answer;
    const further = Object.entries(extras).map(([name, value]) => el('p', { class: 'soft', dir: 'auto' }, `${name}: ${value}`));
    const line = (side, written, tokens) => {
      const name = `tokens of the ${side}`;
      return roving(el('div', { class: 'tokens', dir: direction(written), role: 'group', 'aria-label': name }, ...tokens), '.token');
    };
    const read = () => {
      if (this.answer.picture) return seen(this, null);
      if (this.answer.signal) return el('div', { class: 'signal' }, signal(this));
      return this.answer.regions ? '' : line('source', text, this.units(source).map((unit, index) => this.token(unit, index, 'source')));
    };
    const unknown = source.unknown ?? [];
    const odd = unknown.length ? [el('p', { class: 'soft unread', dir: 'auto' }, `${unknown.length === 1 ? 'One token is' : `${unknown.length} tokens are`} unknown to the model, which reads <unk> there: `,
      el('span', { class: 'unknown' }, short([...new Set(unknown.map((place) => visible(source.tokens[place])))].join(' '), 80)))] : [];
    const range = between ? [el('p', { class: 'soft' }, `nine times of ten it should be between ${between[0]} and ${between[1]}, as the model has it`)] : [];
    const plain = (name, written) => (this.brief ? [] : [el('p', { class: name, dir: 'auto' }, written)]);
    this.parts.detail = el('div', { class: 'detail', role: 'region', 'aria-label': 'what else was likely' });
    this.shown = null;
    this.parts.said.replaceChildren(
      el('div', {},
        el('h2', { class: 'soft' }, 'It read'), ...plain('text', text), ...further, read(), ...odd,
        el('h2', { class: 'soft' }, 'It said'), ...plain('text answer', said || '(nothing)'),
        line('output', said, this.units(output).map((unit, index) => this.saidToken(unit, index))), ...range,
        scale('doubt', 'sure', 'improbable'),
        el('p', { class: 'soft' }, `log-probability ${number(sum)}${truncated ? '; cut off at the limit: its end is not its own' : ''}`)),
      this.parts.detail);
  }
  leastSure() {
    const all = this.units(this.answer.output).slice(0, this.answer.truncated ? -1 : undefined);
    const sure = all.map((unit) => this.sureness(unit));
    return all[sure.indexOf(Math.min(...sure))] ?? null;
  }
  bars(place) {
    const step = this.answer.steps[place], own = this.answer.output.tokens[place];
    const at = step.likeliest.findIndex(([label]) => label === own);
    const rows = step.likeliest.map(([label, logProb], index) => [label, logProb, index === at]);
    if (at < 0) rows.push([own, step.log_prob, true]);
    const name = (label, is) => {
      if (is || !this.actions.choose || UNSAID.includes(label)) return el('span', { class: `label${is ? ' own' : ''}`, dir: 'auto', title: label }, visible(label));
      const onclick = () => this.actions.choose(this.answer.output.tokens.slice(0, place), label);
      return el('button', { type: 'button', class: 'label choose', dir: 'auto', title: 'say this instead', 'aria-label': `say ${visible(label)} instead`, onclick }, visible(label));
    };
    return el('div', { class: 'bars' }, ...rows.flatMap(([label, logProb, is]) => [
      name(label, is),
      el('span', { class: `bar${is ? ' own' : ''}` }, el('i', { '--w': probability(logProb) })),
      el('span', { class: 'number' }, percent(probability(logProb))),
    ]));
  }
  /** What else was likely in an output unit's place, or a form for another word in that of a source unit. */
  drawDetail(output, source) {
    const key = source !== null && this.actions.replace ? `source ${source}` : `output ${output}`;
    if (key === this.shown) return;
    this.shown = key;
    this.parts.detail.replaceChildren(...(key.startsWith('source') ? this.replacing(source) : this.likely(output)));
  }
  likely(index) {
    const unit = index === null ? this.leastSure() : this.units(this.answer.output)[index];
    if (!unit) return [];
    const lines = unit.places.flatMap((place) => {
      const piece = this.answer.output.tokens[place], step = this.answer.steps[place];
      const rank = step.rank === 1 ? 'nothing was likelier' : `rank ${step.rank}: ${step.rank - 1} likelier`;
      const part = [el('span', { class: 'label', dir: 'auto' }, visible(piece)), ` ${percent(probability(step.log_prob))}, `];
      return [el('p', { class: 'soft' }, ...(unit.places.length > 1 ? part : []), rank), this.bars(place)];
    });
    const hint = this.actions.choose ? [el('p', { class: 'soft' }, 'Choose another: the rest is said anew.')] : [];
    return [el('h2', { class: 'soft' }, index === null ? 'Where it was least sure' : 'What else was likely'),
      el('p', {}, el('b', { class: 'label', dir: 'auto' }, visible(unit.label)), ` ${percent(this.sureness(unit))}`), ...lines, ...hint];
  }
  replacing(index) {
    const { words, labels, tokens } = this.answer.source;
    const unit = this.units(this.answer.source)[index], word = words[unit?.places[0]] ?? -1;
    const head = el('h2', { class: 'soft' }, 'Another word here?');
    if (word < 0 || labels[word] === undefined) return [head, el('p', { class: 'soft' }, `${quoted(tokens[unit?.places[0]] ?? '')} is no word of the text.`)];
    const field = el('input', { class: 'field', dir: 'auto', 'aria-label': `a word instead of ${labels[word]}`, value: labels[word], autocomplete: 'off', spellcheck: 'false' });
    const onsubmit = (event) => {
      event.preventDefault();
      this.actions.replace(word, field.value.trim());
    };
    return [head, el('p', {}, el('b', { class: 'label', dir: 'auto' }, visible(labels[word]))),
      el('form', { class: 'instead', onsubmit }, field, el('button', { class: 'plain' }, 'Replace'))];
  }

  // --- attention that is put elsewhere ------------------------------------------------------------------------------

  get canMove() { return Boolean(this.actions.look) && this.store.kind === 'source' && Boolean(this.answer.attention.source) && !this.answer.glimpse && !this.answer.binned; }
  /** The tokens of a row look at those of these columns. */
  look(row, columns) {
    const { rows, columns: all } = this.store;
    this.actions.look(rows[row].places, columns.flatMap((column) => all[column].places), columns.map((column) => all[column].label));
  }
  /** A drag along a row, or from a said token to a read one: where it ends is where the token looks. */
  moved(start) {
    if (!this.store.moving) return;
    const from = start.target.closest('[data-row], .ribbons [data-place=right]');
    if (!from || start.button) return;
    start.preventDefault();
    const row = +(from.dataset.row ?? from.dataset.unit), chosen = new Set();
    const under = (event) => document.elementFromPoint(event.clientX, event.clientY);
    const cells = () => this.parts.map.querySelectorAll('td[data-row]');
    const over = (event) => {
      const { row: at, column } = under(event)?.closest?.('td[data-row]')?.dataset ?? {};
      if (at !== undefined && +at === row) chosen.add(+column);
      for (const one of cells()) one.classList.toggle('chosen', +one.dataset.row === row && chosen.has(+one.dataset.column));
    };
    const end = (event) => {
      window.removeEventListener('pointermove', over);
      const place = under(event)?.closest?.('.ribbons [data-place=left]');
      if (place) chosen.add(+place.dataset.unit);
      if (event.type === 'pointerup' && chosen.size) this.look(row, [...chosen].sort((one, other) => one - other));
    };
    over(start);
    window.addEventListener('pointermove', over);
    for (const name of ['pointerup', 'pointercancel']) window.addEventListener(name, end, { once: true });
  }

  // --- light: what hangs together with what is pointed at -----------------------------------------------------------

  /** Row, column, output and source unit that an element stands for. */
  meant(element) {
    const one = element.closest?.('[data-row], [data-unit]');
    if (!one) return null;
    const { row, column, side, unit, place } = one.dataset;
    const kind = KINDS[this.store.kind];
    if (row !== undefined) return { row: +row, column: +column, output: kind.rows === 'output' ? +row : null, source: null, exact: true };
    const isRow = place ? place === 'right' : side === kind.rows;
    return { row: isRow ? +unit : null, column: !isRow && side === kind.columns ? +unit : null,
      output: side === 'output' ? +unit : null, source: side === 'source' ? +unit : null };
  }
  point(lit) {
    if (same(lit, this.store.lit) && !lit === !this.store.lit) return;
    this.store.lit = lit;
    this.paint();
  }
  pointed(event) {
    if (event.target.closest?.('.detail, .painted')) return; // it shows what is looked at, and is not looked at itself
    this.point(this.meant(event.target));
  }
  pin(event) {
    const clicked = this.meant(event.target);
    if (!clicked || (this.store.moving && clicked.exact)) return;
    this.store.pinned = same(clicked, this.store.pinned) && this.store.pinned ? null : clicked;
    this.paint();
    if (this.store.pinned?.source !== null && event.detail === 0) this.parts.detail.querySelector('input')?.focus(); // by a key
  }
  /** How much a token of the lines above is looked at by, or looks at, what is lit. */
  share(lit, side, unit) {
    const { rows, columns } = KINDS[this.store.kind], { weights } = this.store;
    if (!weights || !lit) return null;
    if (lit.row !== null) {
      if (side === columns) return weights[lit.row]?.[unit] ?? null;
      return columns === 'heard' && side === 'output' ? weights[lit.row]?.[unit + 1] ?? null : null;
    }
    return lit.column !== null && side === rows ? weights[unit]?.[lit.column] ?? null : null;
  }
  paintTokens(lit) {
    for (const element of this.parts.main.querySelectorAll('.token')) {
      const { side, unit, place } = element.dataset;
      const isRow = place ? place === 'right' : side === KINDS[this.store.kind].rows;
      const asOutput = side === 'output' && lit?.row === null && lit.output === +unit;
      const isLit = lit !== null && (isRow ? lit.row === +unit || asOutput : lit.column === +unit);
      const weight = place ? null : this.share(lit, side, +unit);
      element.classList.toggle('lit', isLit);
      element.classList.toggle('shaded', weight !== null && !isLit);
      for (const name of ['deep', 'mid']) element.classList.toggle(name, weight !== null && !isLit && shade(eased(weight)) === name);
      if (weight !== null) element.style.setProperty('--w', eased(weight));
      element.setAttribute('aria-pressed', this.store.pinned !== null && same(this.meant(element), this.store.pinned));
    }
  }
  paintMap(lit) {
    const { map } = this.parts;
    const hit = (row, column) => lit !== null && (lit.exact ? lit.row === row && lit.column === column : lit.row === row || lit.column === column);
    for (const line of map.querySelectorAll('[data-line]')) line.classList.toggle('lit', lit?.row === +line.dataset.line);
    for (const figure of map.querySelectorAll('figure')) figure.classList.toggle('lit', lit?.row === +figure.dataset.unit);
    for (const top of map.querySelectorAll('[data-top]')) top.classList.toggle('lit', lit?.column === +top.dataset.top);
    for (const path of map.querySelectorAll('path')) path.classList.toggle('lit', hit(+path.dataset.row, +path.dataset.column));
    map.querySelector('.ribbons')?.classList.toggle('lit', lit !== null && (lit.row !== null || lit.column !== null));
  }
  readout(lit) {
    const { rows, columns, weights, moving } = this.store, { verb, by } = KINDS[this.store.kind];
    if (!weights) return '';
    const most = (list, weightOf) => { // the three of these that have the most, in words
      const all = list.map((unit, index) => [weightOf(index), unit]).sort((one, other) => other[0] - one[0]);
      const named = all.slice(0, 3).filter(([weight]) => weight >= 0.005);
      return named.map(([weight, unit]) => `${quoted(unit.label)} ${whole(weight)}`).join(', ') || 'nothing';
    };
    if (this.onPicture && !lit) return `${this.where()}: bright where it looked, all pictures on one scale; point at one`;
    if (moving && (!lit || lit.row === null)) return `${this.where()}: drag along a row, or from a said token to a read one: it looks there instead`;
    if (!lit || (lit.row === null && lit.column === null)) return `${this.where()}: point at a token, a cell or a ribbon; a click keeps it`;
    if (lit.row === null) return `${quoted(columns[lit.column].label)} ${by} ${most(rows, (row) => weights[row][lit.column])}`;
    const who = `${quoted(rows[lit.row].label)} ${verb}`;
    if (!lit.exact) return `${who} ${most(columns, (column) => weights[lit.row][column])}`;
    return `${who} ${quoted(columns[lit.column].label)}: ${whole(weights[lit.row][lit.column])} (${this.where()})`;
  }
  paint() {
    const lit = this.store.lit ?? this.store.pinned, { pinned } = this.store;
    this.paintTokens(lit);
    this.paintMap(lit);
    const output = lit?.output ?? pinned?.output ?? null;
    this.drawDetail(output, output === null ? pinned?.source ?? null : null);
    this.parts.readout.textContent = this.readout(lit);
  }

  // --- controls -------------------------------------------------------------------------------------------------------

  selector(name, options, value, change) {
    const lines = options.map(([key, text]) => el('option', { value: key }, text));
    const select = el('select', { onchange: (event) => change(+event.target.value) }, ...lines);
    select.value = value;
    return el('label', { 'data-control': name }, name, select);
  }
  choice(name, options, change) {
    return el('fieldset', { class: 'choice', 'data-control': name, 'aria-label': name }, ...Object.entries(options).map(([key, text]) =>
      el('label', {}, el('input', { type: 'radio', name: `${name}-${this.id}`, value: key, checked: this.store[name] === key, onchange: () => change(key) }), text)));
  }
  toggle(name, text, pressed, onclick, title = null) {
    return el('button', { type: 'button', class: 'plain toggle', 'data-control': name, 'aria-pressed': String(Boolean(pressed)), title, onclick }, text);
  }
  /** Is there a picture to draw these weights on? */
  get pictured() {
    const { rows, columns } = KINDS[this.store.kind];
    return Boolean(this.answer.picture) && columns === 'source' && rows === 'output';
  }
  get onPicture() { return this.store.view === 'picture' && this.pictured; }
  edits(stack) {
    const { store, actions } = this, found = [];
    if (actions.mask && stack.shape[1] > 1 && store.head !== MEAN && ['source', 'within_source', 'within_output'].includes(store.kind) && !this.answer.glimpse) {
      const masked = actions.masked(store.kind, store.layer, store.head);
      found.push(this.toggle('mask', masked ? 'unmask this head' : 'mask this head', masked, () => actions.mask(store.kind, store.layer, store.head), 'What if this head found nothing?'));
    }
    if (this.canMove && store.view !== 'picture') {
      found.push(this.toggle('moving', 'move attention', store.moving, () => this.change({ moving: !store.moving, pinned: null }), 'What if a token looked elsewhere?'));
    }
    return found;
  }
  drawControls() {
    const { attention, source, output } = this.answer, { store } = this, stack = attention[store.kind];
    const names = Object.fromEntries(Object.keys(KINDS).filter((kind) => attention[kind]).map((kind) => [kind, KINDS[kind].name]));
    const focused = this.parts.controls.contains(document.activeElement) ? document.activeElement.closest('[data-control]')?.dataset.control : null;
    const counted = (name, place) => {
      const all = [...Array(stack.shape[place]).keys()].map((index) => [index, String(index + 1)]);
      return name === 'head' && all.length > 1 ? [[MEAN, 'mean'], ...all] : all;
    };
    const shown = [];
    if (stack) {
      const ways = { ...(this.pictured ? { picture: 'picture' } : {}), map: 'heat map', ribbons: 'ribbons' };
      shown.push(this.choice('view', ways, (view) => this.change({ view })));
      if (Object.keys(names).length > 1) shown.push(this.choice('kind', names, (kind) => this.change({ kind, pinned: null, lit: null })));
      if (stack.shape[0] > 1) shown.push(this.selector('layer', counted('layer', 0), store.layer, (layer) => this.change({ layer })));
      if (stack.shape[1] > 1) shown.push(this.selector('head', counted('head', 1), store.head, (head) => this.change({ head })));
    }
    if (merges(source) || merges(output)) {
      const onchange = (event) => this.change({ words: event.target.checked, pinned: null, lit: null });
      const box = el('input', { type: 'checkbox', checked: store.words, onchange });
      shown.push(el('label', { 'data-control': 'words' }, box, 'whole words'));
    }
    if (stack) shown.push(...this.edits(stack));
    if (stack) shown.push(this.onPicture ? scale('veil', '0', `${whole(brightest(this))} of its look in a region`) : scale('look', '0', whole(darkest(this))));
    this.parts.controls.replaceChildren(...shown);
    if (focused) this.parts.controls.querySelector(`[data-control="${focused}"] :is(select, :checked, [type=checkbox]), button[data-control="${focused}"]`)?.focus();
  }
  drawMap() {
    const ways = { picture: pictures, map: heatMap, ribbons };
    const view = this.store.view === 'picture' && !this.pictured ? 'map' : this.store.view;
    this.parts.map.classList.toggle('moving', this.store.moving);
    this.parts.map.replaceChildren(this.store.weights === null ? '' : ways[view](this));
    this.paint();
  }
  drawHeads() {
    const stack = this.answer.attention[this.store.kind], { heads } = this.parts;
    heads.hidden = !stack || stack.shape[0] * stack.shape[1] < 2;
    heads.replaceChildren(...(heads.hidden ? [] : allHeads(this, stack)));
  }
  pressHeads() {
    const single = this.answer.attention[this.store.kind]?.shape[1] === 1;
    for (const button of this.parts.heads.querySelectorAll('button')) {
      const { layer, head } = button.dataset;
      button.setAttribute('aria-pressed', +layer === this.store.layer && (single || +head === this.store.head));
    }
  }
  drawBeam() {
    const { tree } = this.answer;
    this.parts.beam.hidden = !tree || tree.length < 2;
    if (!this.parts.beam.hidden) this.parts.beam.replaceChildren(...beamTree(tree, this.data.fates, this.actions.follow));
  }

  // --- the whole of one answer ------------------------------------------------------------------------------------------

  change(wishes) {
    Object.assign(this.store, wishes);
    this.settle();
    this.drawControls();
    if ('words' in wishes) this.drawSaid();
    if ('words' in wishes || 'kind' in wishes) this.drawHeads();
    this.pressHeads();
    this.drawMap();
  }
  /** Show another answer. */
  drawAnswer(index) {
    const { store } = this;
    Object.assign(store, { at: index, pinned: null, lit: null });
    if (Boolean(this.answer.picture) !== (store.view === 'picture')) store.view = this.answer.picture ? 'picture' : store.view === 'picture' ? 'map' : store.view;
    prepare(this.answer, this.data);
    this.settle();
    this.drawSaid();
    this.drawControls();
    this.drawHeads();
    this.pressHeads();
    this.drawMap();
    this.drawBeam();
    this.parts.none.hidden = Boolean(this.answer.attention.source);
  }
  /** The sections that an answer is drawn in, below what stands `before` them. */
  panes(...before) {
    const { parts } = this;
    for (const name of ['controls', 'map']) parts[name] = el('div', { class: name === 'map' ? 'looked' : name });
    parts.readout = el('p', { class: 'readout soft' });
    parts.none = el('p', { class: 'soft none' }, NONE);
    parts.said = el('section', { class: 'said' });
    parts.heads = el('div', { class: 'all' });
    parts.beam = el('section', { class: 'beam' });
    parts.where = el('section', {}, el('h2', {}, 'Where it looked'), parts.none, parts.controls, parts.readout,
      el('div', { class: 'both' }, parts.map, parts.heads));
    const point = (event) => this.pointed(event);
    const onkeydown = (event) => {
      const at = event.target.closest?.('td[data-row]');
      if (!at || !this.store.moving || (event.key !== 'Enter' && event.key !== ' ')) return;
      event.preventDefault();
      this.look(+at.dataset.row, [+at.dataset.column]);
    };
    parts.main = el(this.brief ? 'div' : 'main', { class: 'panes', onpointerover: point, onpointerleave: point, onfocusin: point, onclick: (event) => this.pin(event),
      onpointerdown: (event) => this.moved(event), onkeydown }, ...before, parts.said, parts.where, parts.beam);
    return parts.main;
  }
}
