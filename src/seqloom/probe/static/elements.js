/* Elements of a page: data becomes text nodes and attributes, never markup. Arrow keys move inside of a box. */

export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('--')) element.style.setProperty(name, value);
    else if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  return element;
}
export function el(tag, attributes = {}, ...children) {
  const element = set(document.createElement(tag), attributes);
  element.append(...children);
  return element;
}
export function svg(tag, attributes = {}, ...children) {
  const element = set(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes);
  element.append(...children);
  return element;
}
/** Arrow keys move inside of a box; Tab enters and leaves it. */
export function roving(box, selector, columns = 1) {
  const items = () => [...box.querySelectorAll(selector)];
  items().forEach((item, index) => { item.tabIndex = index === 0 ? 0 : -1; });
  set(box, { 'data-arrows': true, onkeydown: (event) => {
    const all = items(), at = all.indexOf(document.activeElement), next = box.dir === 'rtl' ? -1 : 1;
    const steps = { ArrowLeft: at - next, ArrowRight: at + next, ArrowUp: at - columns, ArrowDown: at + columns, Home: 0, End: all.length - 1 };
    if (at < 0 || !(event.key in steps)) return;
    event.preventDefault();
    all[steps[event.key]]?.focus();
  } });
  box.addEventListener('focusin', (event) => {
    for (const item of items()) if (item.tabIndex === 0) item.tabIndex = -1;
    event.target.tabIndex = 0;
  });
  return box;
}
/** The title of a page, and notes under it. */
export function header({ title, notes }) {
  return el('header', { class: 'top' }, el('h1', { dir: 'auto' }, title), ...notes.map((note) => el('p', { class: 'soft', dir: 'auto' }, note)));
}
/** Arrows turn the page by one, unless something under the focus has a use for them. */
export function turning(turn) {
  document.addEventListener('keydown', (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (event.target.closest('[data-arrows], input, select, textarea')) return;
    if (event.key === 'ArrowRight') turn(1);
    if (event.key === 'ArrowLeft') turn(-1);
  });
}
