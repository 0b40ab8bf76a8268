/* How texts and numbers read: what takes no room is written visibly, and what is small is not nothing. */

const BLANKS = { ' ': '␣', '\u00a0': '␣', '\n': '⏎', '\t': '⇥' };
const UNSEEN = /[\u0000-\u0020\u007f-\u00a0\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

/** What takes no room, or turns the text around it, is written visibly. */
export function visible(token) {
  const code = (character) => `U+${character.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}`;
  return token === '' ? '∅' : token.replace(UNSEEN, (character) => BLANKS[character] ?? code(character));
}
export const direction = (text) => (RIGHT_TO_LEFT.test(text.match(/\p{L}/u)?.[0] ?? '') ? 'rtl' : 'ltr');
function graphemes(text) {
  return window.Intl && Intl.Segmenter ? Array.from(new Intl.Segmenter().segment(text), (one) => one.segment) : Array.from(text);
}
/** Cut to so many columns; characters of Asian scripts and emoji count two. */
export function short(text, columns) {
  let room = columns, kept = '';
  for (const one of graphemes(text)) {
    room -= one.codePointAt(0) >= 0x1100 ? 2 : 1;
    if (room < 0) return kept + '…';
    kept += one;
  }
  return kept;
}
export const quoted = (text) => `“\u2068${visible(text)}\u2069”`; // isolated: its direction is its own
export const probability = (logProb) => (logProb === null ? 0 : Math.exp(logProb));
export const percent = (share) => (share > 0 && share < 0.001 ? '<0.1 %' : `${(100 * share).toFixed(1)} %`);
export const whole = (share) => (share > 0 && share < 0.005 ? '<1 %' : `${Math.round(100 * share)} %`);
export const number = (value, digits = 3) => (value === null ? '−∞' : value.toFixed(digits));
/** Shades are dark from here on: on these, letters are light. The style sheet says so, for `mid` in dark mode only. */
export const shade = (depth) => (depth > 0.58 ? 'deep' : depth > 0.42 ? 'mid' : null);
export const veiled = (share) => 0.88 * (1 - Math.sqrt(share)); // how dark a region of a picture becomes that has so much of the most
export const eased = (weight) => Math.min(1, weight) ** 0.75; // so that small weights are seen at all

/** A text whose words that the other has not got, between what both begin and end with, are told apart: [text, differs]. */
export function apart(text, other) {
  const mine = text.split(' '), theirs = other.split(' ');
  let first = 0, last = 0;
  while (first < Math.min(mine.length, theirs.length) && mine[first] === theirs[first]) first += 1;
  while (last < Math.min(mine.length, theirs.length) - first && mine.at(-1 - last) === theirs.at(-1 - last)) last += 1;
  const between = [mine.slice(0, first), mine.slice(first, mine.length - last), mine.slice(mine.length - last)].map((words) => words.join(' '));
  return [[between[0], false], [first ? ' ' : '', false], [between[1], true], [last ? ' ' : '', false], [between[2], false]];
}
