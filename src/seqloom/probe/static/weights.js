/* Weights as bytes, and what is drawn of them: tokens or words, of a layer, of a head or of all heads. */

export const MEAN = -1; // in the place of a head
export const LOOKED = { verb: 'looked at', by: 'was looked at most by', head: 'looked at', whole: 'attention ' };
export const CAME = { verb: 'came from', by: 'mattered most to', head: 'came from', whole: 'what it ' };
export const KINDS = {
  source: { name: 'to the source', rows: 'output', columns: 'source', ...LOOKED },
  within_source: { name: 'within the source', rows: 'source', columns: 'source', ...LOOKED, verb: 'looks at' },
  within_output: { name: 'within the output', rows: 'output', columns: 'heard', ...LOOKED },
  from_source: { name: 'came from the source', rows: 'output', columns: 'source', ...CAME },
  from_output: { name: 'from what it had said', rows: 'output', columns: 'output', ...CAME },
};

/** Weights of one answer as bytes, once; `begin` is what a decoder hears first, `steps` what weights are counted in. */
export function prepare(one, { begin, steps }) {
  if (one.heard) return;
  const { tokens, words, labels } = one.output;
  one.heard = { tokens: [begin, ...tokens.slice(0, -1)], words: [-1, ...words.slice(0, -1)], labels };
  const values = Float64Array.from({ length: steps + 1 }, (_, code) => (code / steps) ** 2);
  for (const stack of Object.values(one.attention)) {
    stack.bytes = Uint8Array.from(atob(stack.codes), (character) => character.charCodeAt(0));
    stack.values = values;
    delete stack.codes;
  }
}
/** What is drawn as one: a token, or with `whole` the tokens of one word. An encoder of its own sees the first ones. */
export function unitsOf(side, whole, count = side.tokens.length) {
  const tokens = side.tokens.slice(0, count), odd = new Set(side.unknown ?? []);
  if (!whole) return tokens.map((token, place) => ({ label: token, places: [place], unknown: odd.has(place) }));
  const found = new Map();
  side.words.slice(0, count).forEach((word, place) => {
    const key = word < 0 ? `token ${place}` : word;
    if (!found.has(key)) found.set(key, { label: word < 0 ? side.tokens[place] : side.labels[word], places: [] });
    found.get(key).places.push(place);
  });
  for (const unit of found.values()) {
    unit.label ??= unit.places.map((place) => side.tokens[place]).join('');
    unit.unknown = unit.places.some((place) => odd.has(place));
  }
  return [...found.values()];
}
export const merges = (side) => new Set(side.words.filter((word) => word >= 0)).size < side.words.filter((word) => word >= 0).length;
const heads = (stack, head) => (head === MEAN ? [...Array(stack.shape[1]).keys()] : [head]);

/** Weights of one layer and head between units: summed over a column's tokens, averaged over a row's. */
export function matrix(stack, layer, head, rows, columns) {
  const [, count, height, width] = stack.shape, { bytes, values } = stack;
  const chosen = heads(stack, head);
  return rows.map((row) => columns.map((column) => {
    let sum = 0;
    for (const h of chosen) for (const t of row.places) for (const s of column.places) {
      sum += values[bytes[((layer * count + h) * height + t) * width + s]];
    }
    return sum / (chosen.length * row.places.length);
  }));
}
export const entropy = (row) => Math.abs(row.reduce((sum, weight) => (weight > 0 ? sum - weight * Math.log2(weight) : sum), 0));
export const averaged = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
/** The largest of many: too many for Math.max to be called with. */
export const largest = (rows, least = 0) => rows.reduce((most, row) => row.reduce((one, weight) => (weight > one ? weight : one), most), least);
