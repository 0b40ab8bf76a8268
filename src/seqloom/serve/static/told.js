/* How suggestions came about, as parts of a page: steps, gate, trigger, ranking. All texts are data and become text. */
import { el } from './elements.js';

const SIGNS = { positive: '+', negative: '−', neutral: '·' };
const number = (value) => value.toFixed(2);
const titled = (title, note, ...children) => el('section', {}, el('div', { class: 'headline' }, el('h2', {}, title), el('span', { class: 'soft' }, note)), ...children);

function intentOf({ intent, polarity }) {
  return el('span', { class: `intent ${polarity}` }, el('i', { 'aria-hidden': 'true' }, SIGNS[polarity] ?? '·'), ` ${intent || 'no intent'}, ${polarity}`);
}
/** One button for each suggestion. */
export function choices(suggestions, choose) {
  return el('div', { class: 'choices', role: 'group', 'aria-label': 'suggestions' }, ...suggestions.map((one, place) =>
    el('button', { type: 'button', class: 'choice', 'aria-pressed': 'false', onclick: () => choose(place) }, el('span', { class: 'words', dir: 'auto' }, one.reply), intentOf(one))));
}
/** What every step left, where it changed something, and what it did. */
export function steps({ steps: all, language }) {
  let last = null; // the text so far; the step that tells the language leaves it alone
  const row = ({ name, text, note }, place) => {
    const same = name !== 'language' && text === last;
    if (name !== 'language') last = text;
    return el('li', { 'data-step': name }, el('div', { class: 'headline' }, el('h3', {}, `${place + 1}. ${name}`), el('span', { class: 'soft' }, same && note === 'none' ? 'nothing to do' : note)),
      ...(same ? [] : [el('pre', { dir: 'auto' }, text || '(nothing)')]));
  };
  return titled('Preprocessing', language ? `language: ${language}` : '', el('ol', { class: 'steps' }, ...all.map(row)));
}
export function gate({ sensitive }) {
  if (!sensitive) return null;
  const said = sensitive.sensitive ? `Stopped: ${sensitive.why}` : 'Passed: nothing sensitive was found.';
  return titled('Sensitivity', 'bad news, illness, death, legal, money, passwords', el('p', { class: `verdict${sensitive.sensitive ? ' stopped' : ''}` }, said));
}
export function trigger({ trigger: asked }) {
  if (!asked) return null;
  const { probability, threshold } = asked;
  const meter = el('div', { class: 'meter', role: 'img', 'aria-label': `probability ${number(probability)}, threshold ${number(threshold)}`, '--w': probability, '--t': threshold }, el('i', {}), el('b', {}));
  return titled('Trigger', 'does it want a short reply?', meter,
    el('p', {}, `${number(probability)}; suggestions are made from ${number(threshold)} on.`));
}
/** The best of the permitted replies, and what their scores are made of. */
export function ranking({ ranking: ranked, suggestions }) {
  if (!ranked?.length) return null;
  const shown = new Set(suggestions.map((one) => one.reply)), best = ranked[0].score, worst = Math.min(...ranked.map((one) => one.score));
  const share = (score) => (best === worst ? 1 : 0.05 + 0.95 * (score - worst) / (best - worst));
  const head = ['', 'reply', 'intent', 'score', 'log P(r | m)', 'log P(r)'].map((name) => el('th', { scope: 'col' }, name));
  const row = (one, place) => el('tr', shown.has(one.reply) ? { class: 'shown' } : {}, el('td', {}, `${place + 1}`), el('td', { dir: 'auto' }, one.reply), el('td', {}, intentOf(one)),
    el('td', { class: 'figure' }, el('span', { class: 'bar', '--w': share(one.score) }, el('i', {})), number(one.score)), el('td', { class: 'figure' }, number(one.log_prob)), el('td', { class: 'figure' }, number(one.prior)));
  return titled('Ranking', 'bold: suggested; suggestions never share an intent', el('div', { class: 'scroll' },
    el('table', { class: 'ranking' }, el('thead', {}, el('tr', {}, ...head)), el('tbody', {}, ...ranked.map(row)))));
}
