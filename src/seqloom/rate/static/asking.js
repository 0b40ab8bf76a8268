// What the page asks its server. Clicks are sent one after the other, and kept until the server has them.

const PATIENCE = 10000; // milliseconds for an answer
const FILES = 60000; // the same for a picture or sound
const AGAIN = 2000; // milliseconds until what was not answered is sent again

export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

async function read(answer) {
  const text = await answer.text();
  let told;
  try {
    told = JSON.parse(text);
  } catch {
    throw new Refused(answer.status, "", "the answer cannot be read");
  }
  if (answer.ok) return told;
  const { code = "", message = "", fix = "" } = told.error ?? {};
  throw new Refused(answer.status, code, [message, fix].filter(Boolean).join("; "));
}

export class Asking {
  // `told` is called with a line about what goes wrong, or with "" when all is well again.
  constructor(token, told) {
    this.token = token;
    this.told = told;
    this.waiting = Promise.resolve();
    this.unsent = 0;
  }

  async ask(path, method = "GET", body = undefined) {
    const headers = { Authorization: `Bearer ${this.token}` };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const given = body === undefined ? undefined : JSON.stringify(body);
    return read(await fetch(path, { method, headers, body: given, signal: AbortSignal.timeout(PATIENCE) }));
  }

  // A file of the study as an address that only this page knows.
  async file(path) {
    const headers = { Authorization: `Bearer ${this.token}` };
    const answer = await fetch(path, { headers, signal: AbortSignal.timeout(FILES) });
    return answer.ok ? URL.createObjectURL(await answer.blob()) : read(answer);
  }

  // Ask until there is an answer: while the server is down or busy, say so and try again.
  async insist(path, method, body) {
    for (;;) {
      try {
        const read = await this.ask(path, method, body);
        this.told("");
        return read;
      } catch (error) {
        if (error instanceof Refused && error.status < 500 && error.status !== 429) throw error;
        const why = error instanceof Refused ? error.message : "the server does not answer";
        const kept = this.unsent ? `Not saved yet (${this.unsent}), and kept: ` : "";
        this.told(`${kept}${why}. Trying again …`);
        await new Promise((resolve) => setTimeout(resolve, AGAIN));
      }
    }
  }

  // In order, each after the one before it was acknowledged.
  send(path, method, body) {
    this.unsent += 1;
    const sent = this.waiting.then(() => this.insist(path, method, body));
    const count = () => { this.unsent -= 1; };
    this.waiting = sent.then(count, count);
    return sent;
  }
}
