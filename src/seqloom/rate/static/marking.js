// Errors marked on the text itself: words are pointed at or walked over, and each mark is minor or major.
// Places are counted in characters (code points), as the server counts them.

const NEXT = { undefined: "minor", minor: "major", major: undefined };

// [start, end] of every word and every sign between blanks; scripts without blanks are cut where words end.
function words(text) {
  const found = [];
  const cut = Intl.Segmenter && new Intl.Segmenter(undefined, { granularity: "word" }).segment(text); // not in all browsers
  const segments = cut ? Array.from(cut, ({ segment }) => segment) : text.match(/\s+|\S+/g) ?? [];
  let place = 0;
  for (const segment of segments) {
    const length = [...segment].length;
    if (segment.trim()) found.push([place, place + length]);
    place += length;
  }
  return found;
}

export class Marking {
  constructor(question, output, answer, save, made) {
    this.letters = [...output.text];
    this.save = save;
    this.spans = answer ?? [];
    this.answer = answer;
    this.at = this.from = 0;
    this.places = [...words(output.text), [this.letters.length, this.letters.length]];
    this.parts = this.places.map(([start, end], index) => {
      const missing = start === end;
      const part = made("span", { className: missing ? "word missing" : "word" });
      part.textContent = missing ? "+ missing" : this.letters.slice(start, end).join("");
      part.setAttribute("role", "button");
      part.addEventListener("pointerdown", (event) => this.press(event, index));
      part.addEventListener("pointerenter", (event) => { if (event.buttons === 1 && this.pressed) this.reach(index); });
      return part;
    });
    this.text = made("p", { className: "words text", dir: "auto" });
    this.blanks = []; // between words: what one error takes in is seen as one
    let place = 0;
    this.places.forEach(([start, end], index) => {
      if (start > place) {
        const blank = made("span", { textContent: this.letters.slice(place, start).join("") });
        this.blanks.push([blank, place]);
        this.text.append(blank);
      }
      if (start === end) this.text.append(" ");
      this.text.append(this.parts[index]);
      place = end;
    });
    this.none = made("button", { type: "button", className: "option", textContent: "No errors" });
    this.none.addEventListener("click", () => this.keep([]));
    this.tally = made("span", { className: "soft" });
    this.element = made("div", { className: "marking" }, this.text, made("div", { className: "choice" }, this.none, this.tally));
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", `Output ${output.letter}: ${question.title}. ${question.asks}`);
    this.show();
  }

  get answered() { return this.answer !== undefined; }

  spanAt(index) {
    const [start, end] = this.places[index];
    return this.spans.find((span) => (
      start === end ? span.start === start && span.end === end : span.start < end && start < span.end
    ));
  }

  show() {
    const [low, high] = [Math.min(this.at, this.from), Math.max(this.at, this.from)];
    this.parts.forEach((part, index) => {
      const severity = this.spanAt(index)?.severity;
      const open = index === this.parts.length - 1;
      part.classList.toggle("minor", severity === "minor");
      part.classList.toggle("major", severity === "major");
      part.classList.toggle("reached", low !== high && low <= index && index <= high);
      part.setAttribute("aria-label", `${open ? "something is missing" : part.textContent}: ${severity ?? "no"} error`);
      part.tabIndex = index === this.at ? 0 : -1;
    });
    for (const [blank, place] of this.blanks) {
      blank.className = this.spans.find((span) => span.start <= place && place < span.end)?.severity ?? "";
    }
    const count = (severity) => this.spans.filter((span) => span.severity === severity).length;
    this.none.setAttribute("aria-pressed", String(this.answered && !this.spans.length));
    this.tally.textContent = this.spans.length ? `${count("minor")} minor, ${count("major")} major` : "";
  }

  // Mark what lies from word `this.from` to `this.at`; marks that it touches go.
  mark(severity) {
    const [low, high] = [Math.min(this.at, this.from), Math.max(this.at, this.from)];
    const last = this.parts.length - 1;
    const start = this.places[low][0];
    const end = this.places[high === last && low !== high ? last - 1 : high][1];
    const touches = (span) => (start === end ? span.start === start && span.end === end : span.start < end && start < span.end);
    const kept = this.spans.filter((span) => !touches(span));
    this.from = this.at;
    this.keep(severity ? [...kept, { start, end, severity }] : kept);
  }

  keep(spans) {
    this.spans = spans.toSorted((one, other) => one.start - other.start);
    this.answer = this.spans;
    this.show();
    this.save(this.spans);
  }

  press(event, index) {
    event.preventDefault();
    this.pressed = true;
    if (event.target.hasPointerCapture?.(event.pointerId)) event.target.releasePointerCapture(event.pointerId);
    this.at = this.from = index;
    this.parts[index].focus();
    this.show();
    const over = new AbortController(); // a finger that scrolls marks nothing
    const ended = (marks) => () => { over.abort(); this.release(marks); };
    document.addEventListener("pointerup", ended(true), { signal: over.signal });
    document.addEventListener("pointercancel", ended(false), { signal: over.signal });
  }

  reach(index) {
    this.at = index;
    this.show();
  }

  // The pointer is lifted. One word: none, minor, major in turns. Several: a new minor error.
  release(marks) {
    this.pressed = false;
    if (marks) this.mark(this.at === this.from ? NEXT[this.spanAt(this.at)?.severity] : "minor");
  }

  key(event) {
    const back = getComputedStyle(this.text).direction === "rtl" ? "ArrowRight" : "ArrowLeft";
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const step = event.key === back ? -1 : 1;
      this.at = Math.min(Math.max(this.at + step, 0), this.parts.length - 1);
      if (!event.shiftKey) this.from = this.at;
      this.show();
      this.parts[this.at].focus();
      return true;
    }
    if (event.key === "1" || event.key === "2") this.mark(event.key === "1" ? "minor" : "major");
    else if (event.key === "0" || event.key === "Backspace" || event.key === "Delete") this.mark(undefined);
    else if (event.key === "Enter" && event.target.classList?.contains("word")) this.mark(NEXT[this.spanAt(this.at)?.severity]);
    else if (event.key.toLowerCase() === "n") this.keep([]);
    else return false;
    return true;
  }

  focus(how) { this.parts[this.at].focus(how); }
}
