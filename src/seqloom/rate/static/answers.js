// How each kind of question is drawn and answered. A cell has `element`, `answered`, `key(event)` and `focus()`.

import { Marking } from "./marking.js";

export function made(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// Some buttons of which one is pressed: yes or no, levels, places.
class Choice {
  constructor(question, letter, options, answer, save) {
    this.save = save;
    this.options = options;
    this.buttons = options.map(({ value, label, said }) => {
      const button = made("button", { type: "button", className: "option", textContent: label });
      button.setAttribute("aria-label", said);
      button.addEventListener("click", () => this.choose(value));
      return button;
    });
    this.element = made("div", { className: "choice" }, ...this.buttons);
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", `Output ${letter}: ${question.title}. ${question.asks}`);
    this.show(answer);
  }

  get answered() { return this.answer !== undefined; }

  show(answer) {
    this.answer = answer;
    const place = this.options.findIndex(({ value }) => value === answer);
    this.buttons.forEach((button, index) => {
      button.setAttribute("aria-pressed", String(index === place));
    });
  }

  choose(value) {
    this.show(value);
    this.save(value);
  }

  key(event) {
    const option = this.options.find(({ keys }) => keys.includes(event.key.toLowerCase()));
    if (!option) return false;
    this.choose(option.value);
    return true;
  }

  focus(how) {
    const pressed = this.buttons.find((button) => button.getAttribute("aria-pressed") === "true");
    (pressed ?? this.buttons[0]).focus(how);
  }
}

// A number from 0 to 100. Nothing is said until the slider is moved or a place on it is chosen.
class Slider {
  constructor(question, letter, answer, save) {
    this.save = save;
    this.input = made("input", { type: "range", min: 0, max: 100, step: 1, value: answer ?? 50 });
    this.input.setAttribute("aria-label", `Output ${letter}: ${question.title}. ${question.asks}`);
    this.value = made("output");
    this.element = made("div", { className: "range" }, made("span", { className: "bound", textContent: "0" }), this.input,
      made("span", { className: "bound", textContent: "100" }), this.value);
    this.input.addEventListener("input", () => this.show(Number(this.input.value)));
    this.input.addEventListener("change", () => this.keep());
    this.input.addEventListener("pointerup", () => this.keep());
    this.show(answer);
    this.kept = answer;
  }

  get answered() { return this.answer !== undefined; }

  show(answer) {
    this.answer = answer;
    this.element.classList.toggle("open", answer === undefined);
    this.value.textContent = answer === undefined ? "–" : String(answer);
    this.input.setAttribute("aria-valuetext", answer === undefined ? "not rated" : String(answer));
    if (answer !== undefined) this.input.value = answer;
  }

  keep() {
    this.show(Number(this.input.value));
    if (this.answer !== this.kept) {
      this.kept = this.answer;
      this.save(this.answer);
    }
  }

  key(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10, Home: -100, End: 100 };
    if (!(event.key in steps)) return false;
    const step = steps[event.key] * (event.shiftKey ? 10 : 1);
    this.input.value = Number(this.input.value) + step;
    this.show(Number(this.input.value));
    clearTimeout(this.soon);
    this.soon = setTimeout(() => this.keep(), 150); // a key that is held is one answer
    return true;
  }

  // What is still to be kept is kept now.
  leave() {
    clearTimeout(this.soon);
    if (this.answered) this.keep();
  }

  focus(how) { this.input.focus(how); }
}

const YES = [
  { value: true, label: "Yes", said: "yes", keys: ["y"] },
  { value: false, label: "No", said: "no", keys: ["n"] },
];

const numbers = (count, said) => Array.from({ length: count }, (_, index) => (
  { value: index + 1, label: String(index + 1), said: said(index + 1), keys: [String(index + 1)] }
));

export function cell(question, output, outputs, save) {
  const answer = output.answers[question.name];
  switch (question.kind) {
    case "yes": return new Choice(question, output.letter, YES, answer, save);
    case "levels": return new Choice(question, output.letter, numbers(5, (n) => `${n} of 5`), answer, save);
    case "rank": return new Choice(question, output.letter, numbers(outputs, (n) => `place ${n}`), answer, save);
    case "slider": return new Slider(question, output.letter, answer, save);
    default: return new Marking(question, output, answer, save, made);
  }
}
