/* Asks the server: JSON and files out, server-sent events in. What goes wrong becomes one kind of error, in plain words,
   that says whether and when to try again. */

const SLOW = 4000; // milliseconds after which a person is told that it takes a while

/** Something that a person can be told; `wait` are seconds until another try makes sense, null: it does not. */
export class Trouble extends Error {
  constructor(message, { wait = null, status = 0, code = '' } = {}) {
    super(message);
    Object.assign(this, { wait, status, code });
  }
}
const key = { value: '' };
export function useKey(value) { key.value = value; }
const headers = () => (key.value ? { Authorization: `Bearer ${key.value}` } : {});

/** What a refusal of the server means for whoever typed. */
function refused(status, body, after) {
  const { code = '', message = '', fix = '' } = body?.error ?? {};
  const wait = Math.max(1, Number(after) || 1);
  if (status === 401) return new Trouble('This server opens with a key.', { status, code });
  if (status === 429) return new Trouble(`Too many requests: the next one in ${wait} s.`, { wait, status, code });
  if (status === 503) return new Trouble('The server is busy.', { wait, status, code });
  if (status === 504) return new Trouble('It took too long. A shorter text may work.', { status, code });
  if (status >= 500) return new Trouble('The server made a mistake; its log says more.', { status, code });
  return new Trouble([message || `The server refused it (${status}).`, fix].filter(Boolean).join('; '), { status, code });
}
async function sent(path, options) {
  let answer;
  try {
    answer = await fetch(path, { ...options, cache: 'no-store', credentials: 'omit' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Trouble('The server does not answer.', { wait: 3 });
  }
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => null);
  throw refused(answer.status, body, answer.headers.get('Retry-After'));
}
/** What a route tells without being asked anything. */
export async function fetched(path) {
  return (await sent(path, { headers: headers() })).json();
}
export const models = () => fetched('/v1/models');
/** One question, answered at once. */
export async function ask(path, request, signal) {
  const options = { method: 'POST', headers: { ...headers(), 'Content-Type': 'application/json' }, body: JSON.stringify(request), signal };
  return (await sent(path, options)).json();
}

/** Events of a stream, one by one. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split('\n\n');
    rest = blocks.pop();
    for (const block of blocks) {
      const [name, data] = block.split('\n');
      yield { name: name.slice('event: '.length), data: JSON.parse(data.slice('data: '.length)) };
    }
  }
}
function posted(request, file) {
  if (!file) return ['/v1/explain', { headers: { ...headers(), 'Content-Type': 'application/json' }, body: JSON.stringify(request) }];
  const { input, ...rest } = request, form = new FormData();
  form.append('request', JSON.stringify(rest));
  form.append('file', file, file.name);
  return ['/v1/explain/file', { headers: headers(), body: form }];
}
/** An answer that is told while it is made: `piece` hears each part of its text, `slow` that it takes a while. */
export async function explain(request, { file = null, signal, piece, slow }) {
  const late = setTimeout(slow, SLOW);
  try {
    const [path, options] = posted({ ...request, stream: true, form: 'packed' }, file);
    const answer = await sent(path, { method: 'POST', signal, ...options });
    for await (const { name, data } of events(answer.body)) {
      if (name === 'piece') piece(data.text);
      else if (name === 'error') throw refused(data.error?.code === 'E_DEADLINE' ? 504 : data.error?.code === 'E_BUSY' ? 503 : 422, data, 1);
      else return data;
    }
    throw new Trouble('The server stopped in the middle of its answer.', { wait: 3 });
  } catch (error) {
    if (error.name === 'AbortError' || error instanceof Trouble) throw error;
    if (signal.aborted) throw new DOMException('', 'AbortError');
    throw new Trouble('The connection broke off in the middle of the answer.', { wait: 3 });
  } finally {
    clearTimeout(late);
  }
}
