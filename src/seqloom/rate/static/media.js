// A source that is a picture or a sound. The page asks for it with its token, so that nobody else is sent it.

import { Refused } from "./asking.js";
import { made } from "./answers.js";

const WORDS = { picture: "The source, a picture", sound: "The source, a sound" };

export class Media {
  // `load()` gives the address of the file.
  constructor(kind, load) {
    Object.assign(this, { kind, load, address: null, gone: false });
    this.element = made("div", { className: `media ${kind}` });
    this.show();
  }

  async show() {
    this.element.replaceChildren(made("p", { className: "soft", role: "status", textContent: "Loading …" }));
    try {
      const address = await this.load();
      if (this.gone) return URL.revokeObjectURL(address);
      this.address = address;
      this.draw();
    } catch (error) {
      this.fail(error instanceof Refused ? error.message : "the server does not answer");
    }
  }

  draw() {
    const shown = this.kind === "picture" ? made("img", { alt: WORDS.picture }) : made("audio", { controls: true });
    shown.setAttribute("aria-label", WORDS[this.kind]);
    shown.addEventListener("error", () => this.fail(`the browser cannot show this ${this.kind}`));
    shown.src = this.address;
    this.element.replaceChildren(shown);
    this.player = this.kind === "sound" ? shown : null;
  }

  fail(why) {
    this.player = null;
    const again = made("button", { type: "button", className: "option", textContent: "Try again" });
    again.addEventListener("click", () => this.show());
    const line = made("p", { role: "alert", textContent: `The ${this.kind} is not shown: ${why}.` });
    this.element.replaceChildren(line, again);
  }

  // Play a sound, or stop it where it is.
  play() {
    if (!this.player) return false;
    if (this.player.paused) this.player.play().catch(() => {});
    else this.player.pause();
    return true;
  }

  leave() {
    this.gone = true;
    this.player?.pause();
    if (this.address) URL.revokeObjectURL(this.address);
  }
}
