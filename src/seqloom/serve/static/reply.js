/* The page of Smart Reply: paste a message, see three suggestions and how they came about, choose one and edit it.
   Nothing is ever sent from here: "send" writes what became of the suggestions to the server's log, where it keeps one. */
import { ask, fetched, useKey } from './asking.js';
import { el } from './elements.js';
import { choices, gate, ranking, steps, trigger } from './told.js';

const EXAMPLE = 'Hi Anna,\n\nare you free for lunch on Friday at 12:30? Tom is coming too.\n\nBest,\nPeter';
const state = { about: null, answer: null, chosen: null, asking: null };
const parts = {};

// --- the frame ----------------------------------------------------------------------------------------------------

function build() {
  parts.about = el('p', { class: 'soft about' });
  parts.notice = el('div', { class: 'trouble', role: 'alert', hidden: true });
  parts.text = el('textarea', { id: 'text', rows: 6, dir: 'auto', spellcheck: 'false', autocomplete: 'off', placeholder: 'Paste a mail (with its headers or without) or a chat message',
    onkeydown: (event) => { if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); suggest(); } } });
  parts.anyway = el('input', { type: 'checkbox', id: 'anyway', 'data-control': 'anyway' });
  parts.said = el('span', { class: 'soft', role: 'status' });
  const go = el('button', { type: 'button', class: 'go', 'data-do': 'suggest', onclick: suggest, title: 'Ctrl + Enter' }, 'Suggest');
  const example = el('button', { type: 'button', class: 'plain', 'data-do': 'example', onclick: () => { parts.text.value = EXAMPLE; suggest(); } }, 'an example');
  parts.answer = el('section', { class: 'answered', hidden: true, 'aria-live': 'polite' });
  parts.inside = el('div', { class: 'inside' });
  document.body.append(
    el('header', { class: 'bar-top' }, el('h1', {}, el('img', { src: '/page/icon.svg', alt: '', width: 26, height: 26 }), 'Smart Reply'),
      el('a', { class: 'soft', href: '/docs' }, 'API')),
    el('main', { class: 'frame wide' }, parts.notice, parts.about,
      el('section', { class: 'asking' }, el('label', { for: 'text' }, 'The message you received'), parts.text,
        el('div', { class: 'options' }, go, example, el('label', { for: 'anyway' }, parts.anyway, 'rank replies even if none is likely'), parts.said)),
      parts.answer, parts.inside));
}
function tell({ model, replies, languages, log }) {
  const kept = log ? 'What becomes of suggestions is logged, without the message.' : 'No log is kept.';
  parts.about.textContent = `${model}: ${replies.toLocaleString('en')} permitted replies, for messages in ${languages.join(', ')}. Nothing is ever sent from this page. ${kept}`;
}

// --- trouble ------------------------------------------------------------------------------------------------------

function trouble(error, again) {
  const retry = again ? [el('button', { type: 'button', class: 'plain', 'data-do': 'retry', onclick: again }, 'Try again')] : [];
  if (error.status === 401) return askKey(error, again);
  parts.notice.replaceChildren(el('span', {}, error.message), ...retry);
  parts.notice.hidden = false;
}
function askKey(error, again) {
  const field = el('input', { class: 'field', type: 'password', 'aria-label': 'key', autocomplete: 'off' });
  const use = el('button', { type: 'button', class: 'plain', 'data-do': 'key', onclick: () => { useKey(field.value.trim()); again?.(); } }, 'Use this key');
  parts.notice.replaceChildren(el('span', {}, error.message), field, use);
  parts.notice.hidden = false;
}
const calm = () => { parts.notice.hidden = true; };

// --- suggestions --------------------------------------------------------------------------------------------------

async function suggest() {
  const message = parts.text.value;
  if (!message.trim()) { parts.text.focus(); return; }
  state.asking?.abort();
  const asking = new AbortController();
  state.asking = asking;
  parts.said.textContent = 'one moment …';
  try {
    const answer = await ask('/v1/reply', { message, anyway: parts.anyway.checked }, asking.signal);
    if (state.asking !== asking) return; // the newest question wins
    Object.assign(state, { answer, chosen: null });
    calm();
    draw();
  } catch (error) {
    if (error.name === 'AbortError') return;
    trouble(error, suggest);
  } finally {
    if (state.asking === asking) parts.said.textContent = '';
  }
}
function draw() {
  const { answer } = state;
  parts.answer.hidden = false;
  parts.editor = el('div', { class: 'editor', hidden: true });
  parts.outcome = el('p', { class: 'soft outcome', role: 'status' });
  const none = el('p', { class: 'reason' }, answer.suggestions.length ? `These are shown because you asked for them: ${answer.reason}.` : `No suggestion: ${answer.reason}.`);
  parts.answer.replaceChildren(el('h2', {}, 'Suggestions'), ...(answer.reason ? [none] : []),
    ...(answer.suggestions.length ? [choices(answer.suggestions, choose)] : []), parts.editor,
    ...(answer.suggestions.length ? [el('div', { class: 'options' }, el('button', { type: 'button', class: 'plain', 'data-do': 'ignore', onclick: ignore }, 'use none of them'))] : []),
    parts.outcome);
  parts.inside.replaceChildren(...[steps(answer), gate(answer), trigger(answer), ranking(answer)].filter(Boolean));
}
function choose(place) {
  state.chosen = state.answer.suggestions[place].reply;
  for (const [index, button] of [...parts.answer.querySelectorAll('.choice')].entries()) button.setAttribute('aria-pressed', String(index === place));
  const field = el('textarea', { id: 'reply', rows: 2, dir: 'auto', 'data-control': 'reply' });
  field.value = state.chosen;
  const send = el('button', { type: 'button', class: 'go', 'data-do': 'send', onclick: () => settle(field.value) }, 'Send');
  parts.editor.hidden = false;
  parts.editor.replaceChildren(el('label', { for: 'reply', class: 'soft' }, 'Your reply, to be edited before you send it'), field,
    el('div', { class: 'options' }, send, el('span', { class: 'soft' }, 'nothing leaves this page but a line for the log')));
  parts.outcome.textContent = '';
  field.focus();
}
const settle = (sent) => report({ chosen: state.chosen, sent });
const ignore = () => report({ chosen: null, sent: null });
/** What became of the suggestions: into the log, where there is one. */
async function report(became) {
  const { answer, about } = state;
  const shown = answer.suggestions.map((one) => one.reply), probability = answer.trigger?.probability ?? null;
  const said = became.chosen === null ? 'ignored' : became.sent.trim() === became.chosen.trim() ? 'sent unchanged' : 'sent edited';
  if (!about?.log) {
    parts.outcome.textContent = `Would be ${said}. This server keeps no log, so nothing was written; nothing was sent.`;
    return;
  }
  try {
    await ask('/v1/reply/feedback', { shown, probability, ...became });
    calm();
    parts.outcome.textContent = `Logged as ${said}. Nothing was sent.`;
    for (const button of parts.answer.querySelectorAll('button')) button.disabled = true;
  } catch (error) {
    trouble(error, () => report(became));
  }
}

async function begin() {
  try {
    state.about = await fetched('/v1/reply');
    calm();
    tell(state.about);
  } catch (error) {
    trouble(error, error.code === 'E_NOT_FOUND' ? null : begin);
  }
}

build();
begin();
