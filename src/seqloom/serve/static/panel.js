/* One model's side of the page: its answer while it is made, what was edited, what can be seen inside of it. */
import { ask, explain, Trouble } from './asking.js';
import { el } from './elements.js';
import { pictureOf, save } from './exporting.js';
import { commandOf, isEdited } from './keeping.js';
import { View } from './view.js';
import { apart, percent, quoted, visible } from './wording.js';

const PARTS = { source: '', within_source: 'encoder.', within_output: 'decoder.' };
const NO_EDITS = { begin: [], attend: [], masks: [] };
const NEAR = 5;
const MOST_TRIES = 6;

export class Panel {
  /** `changed` hears of edits, `replace` of a source word that is to be another, `heard` of answers. */
  constructor({ changed, replace, heard, shows }) {
    Object.assign(this, { changed, heard, shows, edits: { ...NO_EDITS }, model: null, last: null, plain: null, names: {}, late: [], tries: 0 });
    this.actions = {
      choose: (before, token) => this.edit({ ...NO_EDITS, masks: this.edits.masks, begin: [...before, token] }),
      follow: (path) => this.edit({ ...NO_EDITS, masks: this.edits.masks, begin: path }),
      replace,
      look: (rows, columns, read) => this.look(rows, columns, read),
      mask: (kind, layer, head) => this.mask(kind, layer, head),
      masked: (kind, layer, head) => this.edits.masks.includes(headName(kind, layer, head)),
    };
    this.view = new View({ answers: [] }, this.actions, true);
    this.build();
  }
  build() {
    this.name = el('h2', { class: 'model' });
    this.sure = el('div', { class: 'sure', hidden: true });
    this.output = el('p', { class: 'output', dir: 'auto', 'aria-live': 'polite', 'data-part': 'output' });
    this.notice = el('div', { class: 'trouble', role: 'alert', hidden: true });
    this.parts = el('nav', { class: 'sentences', 'aria-label': 'sentences of the text', hidden: true });
    this.chips = el('div', { class: 'chips', hidden: true });
    this.whatIf = el('div', { class: 'edit', hidden: true });
    this.tools = el('div', { class: 'tools', hidden: true });
    this.said = el('span', { class: 'soft', role: 'status' });
    this.body = this.view.panes();
    this.many = el('p', { class: 'soft many', hidden: true });
    this.view.parts.none.after(this.many);
    this.body.hidden = true;
    this.ranked = el('section', { class: 'ranked', hidden: true });
    this.diagnosis = el('section', { class: 'diagnosis', hidden: true });
    this.nearby = el('section', { class: 'nearby', hidden: true });
    this.element = el('div', { class: 'panel' },
      el('section', { class: 'answered' }, el('div', { class: 'headline' }, this.name, this.sure), this.output, this.notice, this.parts, this.chips, this.whatIf, this.tools),
      this.ranked, this.diagnosis, this.body, this.nearby);
  }

  // --- edits ----------------------------------------------------------------------------------------------------------

  edit(edits) {
    this.edits = edits;
    this.changed();
  }
  look(rows, columns, read) {
    const weights = (place) => {
      const line = Array(Math.max(...columns) + 1).fill(0);
      for (const column of columns) line[column] = 1;
      return columns.length === 1 ? `${place + 1}=${columns[0] + 1}` : `${place + 1}=${line.join(',')}`;
    };
    const steps = rows.map((place) => `${place + 1}=`);
    const kept = this.edits.attend.filter((one) => !steps.some((step) => one.startsWith(step)));
    const added = rows.map(weights);
    added.forEach((one, place) => { this.names[one] = `token ${rows[place] + 1} looks at ${read.map(quoted).join(', ')}`; });
    this.edit({ ...this.edits, attend: [...kept, ...added] });
  }
  mask(kind, layer, head) {
    const name = headName(kind, layer, head), { masks } = this.edits;
    this.edit({ ...this.edits, masks: masks.includes(name) ? masks.filter((one) => one !== name) : [...masks, name] });
  }
  drawChips() {
    const { begin, attend, masks } = this.edits;
    const over = begin.at(-1) === '<eos>';
    const chip = (text, edits) => el('span', { class: 'chip' }, el('span', { dir: 'auto' }, text),
      el('button', { type: 'button', 'aria-label': `undo: ${text}`, onclick: () => this.edit(edits) }, '×'));
    const chips = [
      ...(begin.length ? [chip(`${over ? 'says only' : 'begins with'} ${isolated(begin.slice(0, over ? -1 : undefined).map(visible).join(' '))}`, { ...this.edits, begin: [] })] : []),
      ...attend.map((one) => chip(`${this.names[one] ?? `token ${one.replace('=', ' looks at ')}`}${this.late.includes(one) ? ' (of no effect: the answer ends before)' : ''}`, { ...this.edits, attend: attend.filter((other) => other !== one) })),
      ...masks.map((one) => chip(`head ${one} masked`, { ...this.edits, masks: masks.filter((other) => other !== one) })),
    ];
    this.chips.hidden = !chips.length;
    const all = el('button', { type: 'button', class: 'plain', 'data-do': 'undo', onclick: () => this.edit({ ...NO_EDITS }) }, 'undo all');
    this.chips.replaceChildren(el('span', { class: 'soft' }, 'What if:'), ...chips, ...(chips.length ? [all] : []));
  }
  /** The answer without edits beside the one with them, as far as both are of one question. */
  drawWhatIf() {
    const text = this.last?.answer.answer ?? '', edited = isEdited(this.edits);
    this.whatIf.hidden = !edited || !this.plain || this.plain.text !== this.last.answer.text;
    if (this.whatIf.hidden) return;
    const marked = (one, other) => apart(one, other).map(([part, differs]) => (differs ? el('mark', {}, part) : part));
    this.whatIf.replaceChildren(el('dl', {}, el('dt', {}, 'without'), el('dd', { dir: 'auto' }, ...marked(this.plain.answer, text)),
      el('dt', {}, 'with'), el('dd', { dir: 'auto' }, ...marked(text, this.plain.answer))));
  }

  // --- asking ---------------------------------------------------------------------------------------------------------

  /** Stop waiting for whatever was asked. */
  cancel() {
    this.abort?.abort();
    clearTimeout(this.again);
    clearInterval(this.counting);
    this.output.classList.remove('streaming');
  }
  show(model) {
    const before = this.model?.name;
    this.model = model;
    if (model?.name === before) return;
    Object.assign(this, { edits: { ...NO_EDITS }, plain: null, names: {} });
    this.clear();
    this.name.textContent = model?.name ?? '';
  }
  clear() {
    this.cancel();
    this.last = null;
    this.output.textContent = '';
    for (const part of [this.sure, this.notice, this.parts, this.chips, this.whatIf, this.tools, this.body, this.ranked, this.diagnosis, this.nearby]) part.hidden = true;
  }
  request(question) {
    const extras = Object.fromEntries((this.model.extras ?? []).map((name) => [name, question.extras[name] ?? '']));
    const edited = isEdited(this.edits);
    return {
      model: this.model.name, part: question.part, likeliest: 6,
      ...(this.model.files ? { extras } : { input: Object.keys(extras).length ? { source: question.text, ...extras } : question.text }),
      ...(question.beam ? { options: { beam: question.beam } } : {}),
      begin: this.edits.begin, attend: this.edits.attend, mask_heads: this.edits.masks,
      ...(question.reference && !edited ? { reference: question.reference } : {}),
    };
  }
  /** The newest question wins: what an older one still says is not heard. */
  async ask(question, file = null, again = false) {
    this.cancel();
    if (!again) this.tries = 0;
    const abort = new AbortController(), { signal } = abort;
    Object.assign(this, { abort, question, file, late: [] });
    this.drawChips();
    this.output.classList.add('streaming');
    this.tell(null);
    try {
      if (this.model.writes === 'ranking') await this.rank(question, signal);
      else await this.explain(question, file, signal);
      this.tries = 0;
    } catch (error) {
      if (error.name === 'AbortError' || signal.aborted) return;
      if (!(error instanceof Trouble)) console.error(error);
      this.fail(error instanceof Trouble ? error : new Trouble('This page made a mistake; the browser’s console says more.'));
    } finally {
      if (this.abort === abort) this.output.classList.remove('streaming');
    }
  }
  async explain(question, file, signal) {
    let text = '';
    const piece = (more) => {
      if (signal.aborted) return;
      if (!text) this.tell(null);
      text += more;
      this.output.textContent = text;
    };
    const found = await explain(this.request(question), { file, signal, piece, slow: () => !signal.aborted && this.tell('This takes a while …') });
    if (signal.aborted) return;
    this.last = found;
    if (!isEdited(this.edits)) this.plain = { text: found.answer.text, answer: found.answer.answer };
    this.output.textContent = text || found.answer.answer || '(nothing)';
    this.tell(null);
    this.draw(found);
    this.heard(question, this.output.textContent);
  }
  draw(found) {
    const { begin, steps, fates, answer } = found, { view } = this;
    view.data = { answers: [answer], begin, steps, fates };
    this.body.hidden = false;
    view.drawAnswer(0);
    const left = answer.weights_left_out;
    this.many.hidden = !left;
    this.many.textContent = left ? `${left.toLocaleString('en')} weights are too many to draw smoothly: this is the mean of the last layer.` : '';
    view.parts.where.hidden = !Object.keys(answer.attention).length && this.model.attention === false && this.model.writes !== 'text';
    this.drawSure(found.confidence);
    this.drawParts(found);
    this.late = found.late ?? [];
    if (this.late.length) this.drawChips();
    this.drawWhatIf();
    this.drawTools();
    this.drawDiagnosis(found.diagnosis);
    this.nearby.hidden = !this.shows() || Boolean(this.model.files) || this.model.writes === 'continuation';
    if (!this.nearby.hidden) this.offerNearby();
  }
  drawSure(confidence) {
    this.sure.hidden = confidence === null || confidence === undefined;
    if (this.sure.hidden) return;
    const word = confidence >= 0.9 ? 'sure' : confidence >= 0.6 ? 'fairly sure' : confidence >= 0.3 ? 'not so sure' : 'unsure';
    this.sure.replaceChildren(el('span', {}, `${word}, ${percent(confidence)}`), el('span', { class: 'bar' }, el('i', { '--w': confidence })));
    this.sure.setAttribute('title', 'the calibrated probability that the answer is right');
  }
  drawParts({ parts = [], part }) {
    this.parts.hidden = parts.length < 2;
    const button = (text, index) => el('button', { type: 'button', dir: 'auto', 'aria-pressed': String(index === part), onclick: () => this.turn(index) }, text);
    this.parts.replaceChildren(el('span', { class: 'soft' }, 'Look into:'), ...parts.map(button));
  }

  /** Look into another sentence: what was edited inside of this one is over. */
  turn(part) {
    this.edits = { ...this.edits, begin: [], attend: [] };
    this.changed({ part });
  }

  // --- when something goes wrong ------------------------------------------------------------------------------------------

  /** A line under the answer; null: none. */
  tell(message, ...more) {
    this.notice.hidden = message === null;
    this.notice.replaceChildren(...(message === null ? [] : [el('span', { class: 'message' }, message), ...more]));
  }
  fail(trouble) {
    const retry = () => this.ask(this.question, this.file, true);
    const button = el('button', { type: 'button', class: 'plain', 'data-do': 'retry', onclick: retry }, 'Try again');
    const count = el('span', { class: 'soft' });
    this.tell(trouble.message, ...(trouble.status && trouble.status < 500 && trouble.status !== 429 && trouble.status !== 401 ? [] : [button, count]));
    if (trouble.status === 401 || trouble.isOld) this.heard(null, null, trouble);
    if (trouble.wait === null || this.tries >= MOST_TRIES) return;
    let left = Math.ceil(trouble.wait * 2 ** Math.max(0, this.tries - 1));
    this.tries += 1;
    const show = () => { count.textContent = `by itself in ${left} s`; };
    show();
    this.counting = setInterval(() => { left -= 1; show(); }, 1000);
    this.again = setTimeout(retry, left * 1000);
  }

  // --- taking it away ---------------------------------------------------------------------------------------------------------

  drawTools() {
    const { view } = this;
    const does = (text, name, onclick) => el('button', { type: 'button', class: 'plain', 'data-do': name, onclick }, text);
    const picture = (what, kind) => async () => {
      const drawn = pictureOf(view, what);
      this.said.textContent = drawn ? `saved ${await save(drawn, kind, `seqloom-${what}`)}` : 'there is nothing of a size that could be drawn';
    };
    const weights = Object.keys(this.last.answer.attention).length ? [does('map as SVG', 'map-svg', picture('map', 'svg')), does('map as PNG', 'map-png', picture('map', 'png'))] : [];
    const beam = view.parts.beam.hidden ? [] : [does('beam as SVG', 'beam-svg', picture('beam', 'svg')), does('beam as PNG', 'beam-png', picture('beam', 'png'))];
    const line = commandOf({ ...this.question, ...this.edits }, this.model.path ?? this.model.name, this.edits.begin.at(-1) === '<eos>' ? this.last.answer.answer : this.last.begun, this.file?.name);
    this.tools.hidden = false;
    this.said.textContent = '';
    this.tools.replaceChildren(el('details', {}, el('summary', {}, 'Take it away'),
      el('div', { class: 'controls' }, ...weights, ...beam, does('copy the command', 'command', async () => {
        this.said.textContent = await copied(line) ? 'copied' : 'the browser does not let a page copy: mark it and copy it yourself';
      }), this.said), el('code', { class: 'command' }, line)));
  }

  // --- beside the answer ----------------------------------------------------------------------------------------------------------

  drawDiagnosis(told) {
    this.diagnosis.hidden = !told;
    if (!told) return;
    const { verdict, line, score, reference_score: other, symptoms } = told;
    const rows = [
      ['verdict', verdict],
      ...(score !== null && other !== null ? [['scores', `${score.toFixed(3)} for the answer, ${other.toFixed(3)} for the reference`]] : []),
      ...symptoms.map((one) => ['symptom', one.words || one.kind]),
    ];
    this.diagnosis.replaceChildren(el('h2', {}, 'Diagnosis'), el('p', { dir: 'auto' }, line),
      el('dl', { class: 'facts' }, ...rows.flatMap(([name, text]) => [el('dt', {}, name), el('dd', { dir: 'auto' }, text)])));
  }
  offerNearby() {
    const list = el('div', { role: 'status' });
    const find = async () => {
      list.replaceChildren(el('p', { class: 'soft' }, 'Looking: the first time this takes a while …'));
      try {
        const { input } = this.request(this.question);
        const { neighbours, among } = await ask('/v1/neighbours', { model: this.model.name, input, count: NEAR }, this.abort.signal);
        list.replaceChildren(el('p', { class: 'soft' }, `the nearest of ${among.toLocaleString('en')} by the encoder’s state`),
          el('ol', { class: 'near' }, ...neighbours.map((one) => el('li', {}, el('span', { dir: 'auto' }, one.source), el('b', { dir: 'auto' }, one.target),
            el('span', { class: 'soft' }, `line ${one.line}, distance ${one.distance.toFixed(4)}`)))));
      } catch (error) {
        if (error.name !== 'AbortError') list.replaceChildren(el('p', { class: 'message' }, error.message));
      }
    };
    this.nearby.replaceChildren(el('div', { class: 'controls' }, el('h2', {}, 'What it learned from'),
      el('button', { type: 'button', class: 'plain', 'data-do': 'nearby', onclick: find }, 'Nearest training examples')), list);
  }
  /** Runs that write nothing: candidates, best first. */
  async rank(question, signal) {
    const { input } = this.request(question);
    const { candidates, match } = await ask('/v1/rank', { model: this.model.name, input, top: 5, match: true }, signal);
    if (signal.aborted) return;
    this.output.textContent = candidates[0]?.text ?? '(nothing)';
    const most = Math.max(1e-9, ...candidates.map((one) => Math.abs(one.score)));
    const words = (title, all) => el('div', {}, el('h3', {}, title), el('p', { class: 'tokens' }, ...all.map((one) =>
      el('span', { class: 'token shaded', dir: 'auto', '--w': Math.max(0, Math.min(0.4, one.lost)), title: `without it the similarity falls by ${one.lost.toFixed(3)}` }, one.word))));
    this.ranked.hidden = false;
    this.ranked.replaceChildren(el('h2', {}, 'What it would choose'), el('div', { class: 'bars' }, ...candidates.flatMap((one, place) => [
      el('span', { class: `label${place ? '' : ' own'}`, dir: 'auto', title: one.text }, one.text),
      el('span', { class: 'bar' }, el('i', { '--w': Math.max(0, one.score / most) })), el('span', { class: 'number' }, one.score.toFixed(3))])),
    words('Words of the text that carried the match', match.source_words), words('Words of the best candidate', match.candidate_words));
    this.heard(question, this.output.textContent);
  }
}
const isolated = (text) => `“\u2068${text}\u2069”`;
function headName(kind, layer, head) { return `${PARTS[kind]}${layer + 1}.${head + 1}`; }

/** Put a text where a person can paste it from; false where the browser says no. */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
