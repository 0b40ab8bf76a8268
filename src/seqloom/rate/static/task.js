// One item: the source, its references, and every output with its questions. Text from data is always text.

import { cell, made } from "./answers.js";
import { Media } from "./media.js";

export class Task {
  // `save(number, output, question, value)` is called with every answer, `load()` for the file of a picture or sound.
  constructor(told, questions, save, load) {
    this.number = told.number;
    this.cells = [];
    this.media = told.media ? new Media(told.media, load) : null;
    const shared = made("section", { className: "given" }, this.source(told.source));
    told.references.forEach((reference) => shared.append(this.text("Reference", reference, "reference")));
    const meant = questions.map(({ title, asks }) => made("div", {}, made("dt", { textContent: title }), made("dd", { textContent: asks })));
    this.element = made("div", { className: "task" }, shared, made("dl", { className: "meant" }, ...meant));
    const outputs = made("div", { className: "outputs" });
    told.outputs.forEach((output) => outputs.append(this.output(output, told.outputs.length, questions, save)));
    this.element.append(outputs);
    this.current = 0;
    this.light();
  }

  source(text) {
    if (!this.media) return this.text("Source", text, "source");
    const title = made("h2", { className: "label", textContent: "Source" });
    const beside = text ? [made("p", { className: "text source", dir: "auto", textContent: text })] : [];
    return made("div", {}, title, this.media.element, ...beside);
  }

  text(label, text, kind) {
    const body = made("p", { className: `text ${kind}`, dir: "auto", textContent: text });
    if (!text.trim()) body.replaceChildren(made("em", { className: "soft", textContent: "(empty)" }));
    return made("div", {}, made("h2", { className: "label", textContent: label }), body);
  }

  output(output, outputs, questions, save) {
    const title = `Output ${output.letter}`;
    const card = made("section", { className: "card" });
    card.setAttribute("aria-label", title);
    card.append(this.text(title, output.text, "said"));
    for (const question of questions) {
      const drawn = cell(question, output, outputs, (value) => {
        save(this.number, output.letter, question.name, value);
        this.light();
      });
      drawn.question = question;
      const row = made("div", { className: `question ${question.kind}` },
        made("p", { className: "asked", textContent: question.title }), drawn.element);
      drawn.row = row;
      row.addEventListener("focusin", () => this.go(this.cells.indexOf(drawn), false));
      if (question.kind === "spans") card.querySelector(".said").hidden = true; // the same text stands below, to be marked
      card.append(row);
      this.cells.push(drawn);
    }
    return card;
  }

  get done() { return this.cells.every((one) => one.answered); }

  // Make a question the current one, and let it be seen.
  go(index, focus = true) {
    if (index < 0 || index >= this.cells.length) return;
    if (index !== this.current) this.cells[this.current].leave?.call(this.cells[this.current]);
    this.current = index;
    this.light();
    if (focus) {
      this.cells[index].focus();
      this.cells[index].row.scrollIntoView({ block: "nearest" });
    }
  }

  light() {
    this.cells.forEach((one, index) => {
      one.row.classList.toggle("current", index === this.current);
      one.row.classList.toggle("answered", one.answered);
    });
  }

  // The first open question after the current one, else before it; -1 where all are answered.
  get open() {
    const places = this.cells.map((_, step) => (this.current + step) % this.cells.length);
    return places.find((place) => !this.cells[place].answered) ?? -1;
  }

  // Give a key to the current question; after an answer by one key the next open one is current.
  key(event) {
    const now = this.cells[this.current];
    if (!now.key(event)) return false;
    this.light();
    const kind = now.question.kind;
    if (["yes", "levels", "rank"].includes(kind) && this.open >= 0) this.go(this.open);
    return true;
  }

  leave() { this.cells.forEach((one) => one.leave?.call(one)); }

  // Its picture or sound is not needed any more.
  close() { this.media?.leave(); }
}
