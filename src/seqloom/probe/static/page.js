/* The page of some explained answers: the list of them, and what edits changed. */
import { el, header, turning } from './elements.js';
import { View } from './view.js';
import { apart, short } from './wording.js';

const data = JSON.parse(document.getElementById('data').textContent);
const view = new View(data), parts = {};

const differing = (text, other) => apart(text, other).map(([part, differs]) => (differs ? el('mark', {}, part) : part));
function edited() {
  const before = data.answers[data.edit.before].answer, after = data.answers[0].answer;
  return el('section', { class: 'edit' }, el('h2', {}, 'What if'),
    el('dl', {}, el('dt', {}, 'without edits'), el('dd', { dir: 'auto' }, ...differing(before, after)),
      el('dt', {}, 'with them'), el('dd', { dir: 'auto' }, ...differing(after, before))),
    el('p', { class: 'soft' }, 'The same again:'), el('code', {}, data.edit.command));
}
function nameOf(index) {
  if (!data.edit) return '';
  return index === data.edit.before ? 'without edits' : index === 0 ? 'with the edits' : '';
}
function list() {
  const text = (one, index) => `${index + 1}. ${nameOf(index) ? `(${nameOf(index)}) ` : ''}${one.text}`;
  const options = data.answers.map((one, index) => el('option', { value: index }, short(text(one, index), 60)));
  parts.select = el('select', { 'aria-label': 'sentence', onchange: (event) => choose(+event.target.value) }, ...options);
  const lines = data.answers.map((one, index) => el('button', { type: 'button', title: one.text, onclick: () => choose(index) },
    el('span', { dir: 'auto' }, text(one, index)), el('span', { class: 'soft', dir: 'auto' }, one.answer)));
  parts.list = el('ol', {}, ...lines.map((line) => el('li', {}, line)));
  const step = (by, sign, name) => el('button', { type: 'button', class: 'plain', 'aria-label': name, onclick: () => choose(view.store.at + by) }, sign);
  const many = el('span', { class: 'soft keys' }, `${data.answers.length} ${data.edit ? 'answers' : 'sentences'}`);
  const turns = el('div', { class: 'turn' }, step(-1, '←', 'previous'), step(1, '→', 'next'), parts.select, many);
  return el('nav', { class: 'answers', 'aria-label': 'sentences' }, turns, parts.list);
}
function choose(index) {
  if (index < 0 || index >= data.answers.length) return;
  if (data.answers.length > 1) history.replaceState(null, '', `#${index + 1}`);
  view.drawAnswer(index);
  parts.select && (parts.select.value = index);
  parts.list?.querySelectorAll('button').forEach((button, place) => {
    button.setAttribute('aria-current', place === index);
    if (place === index) button.scrollIntoView({ block: 'nearest' });
  });
}
function build() {
  const many = data.answers.length > 1;
  document.body.prepend(header(data),
    el('div', { class: `frame${many ? ' many' : ''}` }, ...(many ? [list()] : []), view.panes(...(data.edit ? [edited()] : []))));
  turning((by) => choose(view.store.at + by));
  choose(Math.max(0, Math.min(data.answers.length, parseInt(location.hash.slice(1), 10) || 1) - 1));
}
build();
