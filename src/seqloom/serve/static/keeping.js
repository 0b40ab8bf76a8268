/* What is asked as one small object that a link can hold and a command line can say; and the history of this visit.
   A link keeps it behind the #, which no server ever sees. */

export const EMPTY = { text: '', extras: {}, model: null, other: null, reference: '', beam: null, part: 0, begin: [], attend: [], masks: [] };
const MOST = 30; // entries of the history
const PLACE = 'seqloom-history';

export const isEdited = (question) => Boolean(question.begin.length || question.attend.length || question.masks.length);
export const withoutEdits = (question) => ({ ...question, begin: [], attend: [], masks: [] });

// --- links ------------------------------------------------------------------------------------------------------

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

export function linked(question) {
  const said = Object.fromEntries(Object.entries(question).filter(([name, value]) => name in EMPTY && !same(value, EMPTY[name])));
  const bytes = new TextEncoder().encode(JSON.stringify(said));
  return `#${btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join('')).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')}`;
}
const kindOf = (value) => (Array.isArray(value) ? 'array' : value === null ? 'null' : typeof value);
/** Only what a question has, each of its own kind: a link may come from anybody. */
function checked(said) {
  const found = { ...EMPTY };
  const texts = (value) => Array.isArray(value) && value.every((one) => typeof one === 'string');
  for (const [name, usual] of Object.entries(EMPTY)) {
    const value = said?.[name];
    if (value === undefined) continue;
    if (Array.isArray(usual) ? texts(value) : usual === null ? ['string', 'number', 'null'].includes(kindOf(value)) : kindOf(value) === kindOf(usual)) found[name] = value;
  }
  found.extras = Object.fromEntries(Object.entries(found.extras).filter(([, value]) => typeof value === 'string'));
  return found;
}
/** The question of a link; null where it holds none. */
export function unlinked(hash) {
  if (hash.length < 2) return null;
  try {
    const bytes = Uint8Array.from(atob(hash.slice(1).replaceAll('-', '+').replaceAll('_', '/')), (character) => character.charCodeAt(0));
    return checked(JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes)));
  } catch {
    return null;
  }
}

// --- the history of this visit -------------------------------------------------------------------------------------

export function remembered() {
  try {
    return JSON.parse(sessionStorage.getItem(PLACE) ?? '[]').map(({ question, answer }) => ({ question: checked(question), answer: String(answer) }));
  } catch {
    return [];
  }
}
/** The same with one more, newest first; a question that grew out of the last one by typing takes its place. */
export function remember(entries, question, answer) {
  const rest = entries.filter((one) => !same(one.question, question));
  const first = rest[0]?.question;
  const grew = first && !isEdited(first) && !isEdited(question) && first.model === question.model && question.text.startsWith(first.text);
  const found = [{ question, answer }, ...(grew ? rest.slice(1) : rest)].slice(0, MOST);
  try {
    sessionStorage.setItem(PLACE, JSON.stringify(found));
  } catch { /* full or forbidden: this page still knows */ }
  return found;
}
export function forget() {
  try {
    sessionStorage.removeItem(PLACE);
  } catch { /* nothing was kept */ }
  return [];
}

// --- the command line ------------------------------------------------------------------------------------------------

const plain = (text) => /^[\w@%+=:,./-]+$/.test(text);
const shell = (text) => (plain(text) ? text : `'${text.replaceAll("'", "'\"'\"'")}'`);

/** The same from a terminal; `begun` is how the tokens read that an answer begins with, or with <eos> all of it. */
export function commandOf(question, run, begun, file) {
  const over = question.begin.at(-1) === '<eos>';
  const given = [
    ...(over ? [`--target=${begun}`] : []),
    ...Object.entries(question.extras).map(([name, value]) => `--extra=${name}=${value}`),
    ...(question.beam && !over ? [`--beam=${question.beam}`] : []),
    ...(question.begin.length && !over ? [`--prefix=${begun}`] : []),
    ...question.attend.map((one) => `--attend=${one}`),
    ...question.masks.map((one) => `--mask-head=${one}`),
  ];
  const places = [run, file ?? question.text];
  const odd = places.some((one) => one.startsWith('-'));
  return ['seqloom', 'explain', ...(odd ? [...given, '--', ...places] : [...places, ...given])].map(shell).join(' ');
}
