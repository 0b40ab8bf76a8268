/* The page at the root of a server: type, see the answer as it is made, look inside, change something, look again. */
import { models, useKey } from './asking.js';
import { el } from './elements.js';
import { EMPTY, forget, linked, remember, remembered, unlinked, withoutEdits } from './keeping.js';
import { Panel, copied } from './panel.js';
import { canRecord, record } from './recording.js';
import { short } from './wording.js';

const PAUSE = 350; // milliseconds without a key after which a text is asked
const ACCEPTED = { pixels: 'image/*', sound: 'audio/*' };
const FILES = { pixels: 'a picture', sound: 'a sound', frames: 'an array (.npy)' };
const WRITES = { labels: 'labels', tags: 'tags', number: 'a number', span: 'a span of the text', continuation: 'how the text goes on', ranking: 'a choice among texts' };

const state = { question: { ...EMPTY }, served: null, file: null, history: remembered(), recording: null };
const parts = {};
const panels = [];
let typing = null;

const modelOf = (name) => state.served.models.find((one) => one.name === name) ?? null;
const first = () => modelOf(state.question.model) ?? state.served.models[0];

// --- the frame ----------------------------------------------------------------------------------------------------

function build() {
  parts.model = el('select', { 'aria-label': 'model', 'data-control': 'model', onchange: (event) => pick({ model: event.target.value }) });
  parts.other = el('select', { 'aria-label': 'compare with', 'data-control': 'other', onchange: (event) => pick({ other: event.target.value || null }) });
  parts.compare = el('label', { class: 'compare' }, 'beside', parts.other);
  parts.about = el('p', { class: 'soft about' });
  parts.replies = el('a', { class: 'soft', href: '/reply', hidden: true }, 'Smart Reply');
  parts.notice = el('div', { class: 'trouble', role: 'alert', hidden: true });
  parts.text = el('textarea', { id: 'text', rows: 2, dir: 'auto', spellcheck: 'false', autocomplete: 'off', placeholder: 'Type here: it is answered as you type', oninput: typed,
    onkeydown: (event) => { if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); now(); } } });
  parts.label = el('label', { for: 'text' }, 'Your text');
  parts.file = el('div', { class: 'file', hidden: true });
  parts.extras = el('div', { class: 'extras' });
  parts.reference = el('input', { class: 'field', id: 'reference', dir: 'auto', autocomplete: 'off', spellcheck: 'false', placeholder: 'what would be right', oninput: typed });
  parts.beam = el('select', { 'aria-label': 'beam', 'data-control': 'beam', onchange: now });
  parts.said = el('span', { class: 'soft', role: 'status' });
  parts.history = el('details', { class: 'history' });
  parts.panels = el('div', { class: 'panels' });
  const go = el('button', { type: 'button', class: 'go', 'data-do': 'ask', onclick: now, title: 'Ctrl + Enter' }, 'Ask');
  const link = el('button', { type: 'button', class: 'plain', 'data-do': 'link', onclick: copyLink }, 'copy link');
  parts.asking = el('section', { class: 'asking' }, parts.label, parts.text, parts.file, parts.extras,
    el('div', { class: 'options' }, go, el('label', { class: 'reference', for: 'reference' }, 'reference', parts.reference), el('label', {}, 'beam', parts.beam), link, parts.said),
    parts.history);
  document.body.append(
    el('header', { class: 'bar-top' }, el('h1', {}, el('img', { src: '/page/icon.svg', alt: '', width: 26, height: 26 }), 'seqloom'),
      el('label', {}, 'model', parts.model), parts.compare, parts.replies, el('a', { class: 'soft', href: '/docs' }, 'API')),
    el('main', { class: 'frame wide' }, parts.notice, parts.about, parts.asking, parts.panels));
}
function panel() {
  const made = new Panel({ changed: (wishes = {}) => { Object.assign(state.question, wishes); ask(); }, replace, heard, shows: () => state.served.examples });
  panels.push(made);
  return made;
}
/** How many models are shown, and which. */
function arrange() {
  const { other } = state.question, chosen = first();
  const wanted = [chosen, ...(other && modelOf(other) && other !== chosen.name ? [modelOf(other)] : [])];
  while (panels.length < wanted.length) panel();
  for (const gone of panels.splice(wanted.length)) gone.cancel();
  wanted.forEach((model, place) => panels[place].show(model));
  parts.panels.replaceChildren(...panels.map((one) => one.element));
  parts.panels.classList.toggle('two', panels.length > 1);
  fill(chosen);
}
/** What of the form suits this model. */
function fill(chosen) {
  const alike = state.served.models.filter((one) => one.name !== chosen.name && one.reads === chosen.reads);
  const option = (one) => el('option', { value: one.name }, one.name);
  parts.model.replaceChildren(...state.served.models.map(option));
  parts.model.value = chosen.name;
  parts.other.replaceChildren(el('option', { value: '' }, 'no other'), ...alike.map(option));
  parts.other.value = state.question.other ?? '';
  parts.compare.hidden = !alike.length;
  const named = (code) => (code === 'und' ? 'text' : code), { languages, files, reads, writes, attention } = chosen;
  const from = files ? FILES[reads] : named(languages.source), to = WRITES[writes] ?? named(languages.target);
  parts.about.textContent = `${from} → ${to}, ${chosen.parameters.toLocaleString('en')} parameters${attention || writes === 'ranking' ? '' : ', no attention'}`;
  parts.text.hidden = parts.label.hidden = Boolean(chosen.files);
  parts.file.hidden = !chosen.files;
  if (chosen.files) drawFile(chosen);
  drawExtras(chosen);
  const searched = ['text', 'continuation'].includes(chosen.writes);
  parts.beam.parentElement.hidden = !searched;
  const sizes = [1, 2, 3, 4, 5, 8, 10].filter((size) => size <= state.served.limits.beam);
  parts.beam.replaceChildren(el('option', { value: '' }, 'as trained'), ...sizes.map((size) => el('option', { value: size }, size === 1 ? '1 (greedy)' : size)));
  parts.beam.value = state.question.beam ?? '';
  parts.reference.parentElement.hidden = ['ranking', 'continuation'].includes(chosen.writes);
  document.title = `seqloom: ${panels.map((one) => one.model.name).join(' and ')}`;
}
function drawExtras({ extras = [] }) {
  parts.extras.hidden = !extras.length;
  parts.extras.replaceChildren(...extras.map((name) => {
    const field = el('input', { class: 'field', dir: 'auto', autocomplete: 'off', spellcheck: 'false', 'data-extra': name, oninput: typed });
    field.value = state.question.extras[name] ?? '';
    return el('label', {}, name, field);
  }));
}
function drawFile(chosen) {
  const take = (file) => { if (file) { state.file = file; drawFile(chosen); now(); } };
  const input = el('input', { type: 'file', 'aria-label': FILES[chosen.reads], accept: [ACCEPTED[chosen.reads], ...chosen.files].filter(Boolean).join(','), onchange: (event) => take(event.target.files[0]) });
  const mic = chosen.reads === 'sound' && canRecord() ? [el('button', { type: 'button', class: 'plain', 'data-do': 'record', 'aria-pressed': String(Boolean(state.recording)), onclick: () => listen(chosen, take) }, state.recording ? 'Stop' : 'Speak')] : [];
  const drop = (event) => { event.preventDefault(); take(event.dataTransfer.files[0]); };
  parts.file.replaceChildren(el('div', { class: 'drop', ondragover: (event) => event.preventDefault(), ondrop: drop },
    el('span', {}, state.file ? state.file.name : `Drop ${FILES[chosen.reads]} here, or choose one`), input, ...mic));
}
async function listen(chosen, take) {
  if (state.recording) return state.recording.stop();
  try {
    state.recording = await record();
    drawFile(chosen);
    take(await state.recording.file);
  } catch {
    parts.said.textContent = 'The browser gives no microphone to this page.';
  } finally {
    state.recording = null;
    drawFile(chosen);
  }
}

// --- asking -------------------------------------------------------------------------------------------------------

function read() {
  Object.assign(state.question, { text: parts.text.value, reference: parts.reference.value, beam: Number(parts.beam.value) || null, model: first().name });
  state.question.extras = Object.fromEntries([...parts.extras.querySelectorAll('[data-extra]')].map((field) => [field.dataset.extra, field.value]));
}
/** A text that changed is another question: what was edited inside of its answer is over. */
function typed() {
  clearTimeout(typing);
  typing = setTimeout(now, PAUSE);
}
function now() {
  clearTimeout(typing);
  if (!state.served) return;
  const before = JSON.stringify([state.question.text, state.question.extras]);
  read();
  if (JSON.stringify([state.question.text, state.question.extras]) !== before) {
    state.question.part = 0;
    for (const one of panels) one.edits = { ...one.edits, begin: [], attend: [] };
  }
  ask();
}
function ask() {
  const ready = first().files ? state.file : state.question.text.trim();
  for (const one of panels) {
    if (ready) one.ask({ ...state.question }, state.file);
    else one.clear();
  }
}
function pick(wishes) {
  read();
  Object.assign(state.question, wishes, { part: 0 });
  if ('model' in wishes) {
    const kept = modelOf(state.question.other);
    if (!kept || kept.name === wishes.model || kept.reads !== first().reads) state.question.other = null;
    state.file = null;
  }
  arrange();
  ask();
}
/** The word of this number becomes another, white space around it stays. */
function replace(word, text) {
  let place = -1;
  parts.text.value = parts.text.value.replace(/\S+/g, (old) => { place += 1; return place === word ? text : old; });
  now();
}
function heard(question, answer, trouble = null) {
  if (trouble) return askKey();
  const own = { ...question, ...panels[0].edits };
  history.replaceState(null, '', linked(first().files ? { ...own, text: '' } : own));
  if (!first().files) {
    state.history = remember(state.history, own, answer);
    drawHistory();
  }
}
async function copyLink() {
  parts.said.textContent = await copied(location.href) ? 'copied' : 'the address bar has it';
  setTimeout(() => { parts.said.textContent = ''; }, 3000);
}

// --- history and links ------------------------------------------------------------------------------------------------

function drawHistory() {
  const open = parts.history.open;
  parts.history.hidden = !state.history.length;
  parts.history.replaceChildren(el('summary', {}, `History (${state.history.length})`),
    el('ol', {}, ...state.history.map(({ question, answer }) => el('li', {}, el('button', { type: 'button', onclick: () => restore(question) },
      el('span', { dir: 'auto' }, short(question.text, 70)), el('span', { class: 'soft', dir: 'auto' }, `${short(answer, 70)}${question.begin.length + question.attend.length + question.masks.length ? ' (edited)' : ''}`))))),
    el('button', { type: 'button', class: 'plain', onclick: () => { state.history = forget(); drawHistory(); } }, 'forget all'));
  parts.history.open = open;
}
function restore(question) {
  state.question = { ...EMPTY, ...question };
  const known = modelOf(question.model);
  if (!known) state.question.model = null;
  parts.text.value = state.question.text;
  parts.reference.value = state.question.reference;
  arrange();
  const { begin, attend, masks } = state.question;
  panels[0].edits = { begin, attend, masks };
  state.question = withoutEdits(state.question);
  ask();
}

// --- beginning ----------------------------------------------------------------------------------------------------------

function askKey() {
  const field = el('input', { class: 'field', type: 'password', autocomplete: 'off', 'aria-label': 'key' });
  const onsubmit = (event) => { event.preventDefault(); useKey(field.value.trim()); begin(); };
  parts.notice.hidden = false;
  parts.notice.replaceChildren(el('form', { class: 'instead', onsubmit }, el('span', { class: 'message' }, 'This server opens with a key.'), field, el('button', { class: 'plain' }, 'Open')));
}
async function begin() {
  parts.notice.hidden = true;
  try {
    state.served = await models();
    parts.replies.hidden = !state.served.reply;
  } catch (error) {
    if (error.status === 401) return askKey();
    const retry = el('button', { type: 'button', class: 'plain', 'data-do': 'retry', onclick: begin }, 'Try again');
    parts.notice.hidden = false;
    parts.notice.replaceChildren(el('span', { class: 'message' }, error.message), retry);
    setTimeout(() => { if (!parts.notice.hidden && !state.served) begin(); }, 1000 * (error.wait ?? 3));
    return;
  }
  const typedBefore = parts.text.value;
  const asked = state.question.text ? { ...state.question, ...panels[0]?.edits } : unlinked(location.hash) ?? { ...EMPTY };
  restore(typedBefore ? { ...asked, text: typedBefore } : asked);
  parts.text.focus();
}
build();
drawHistory();
window.addEventListener('hashchange', () => { const asked = unlinked(location.hash); if (asked && state.served) restore(asked); });
begin();
