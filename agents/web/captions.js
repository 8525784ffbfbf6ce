// Captions of each utterance; the words heard so far are bright, the one being heard is marked.

const KEPT = 4;
const MARK_MS = 40;

export class Captions {
  constructor(root) {
    this.root = root;
    this.utterances = new Map();
    setInterval(() => this.mark(performance.now() / 1000), MARK_MS);
  }

  /** Start the caption of an utterance whose text is being written. */
  begin(id) {
    this.root.querySelector(".hint")?.remove();
    const node = document.createElement("p");
    this.root.append(node);
    this.utterances.set(id, { node, text: "", words: [], spans: [], heardS: 0, done: false });
    const old = [...this.utterances.entries()].slice(0, -KEPT);
    for (const [oldId, utterance] of old) {
      utterance.node.remove();
      this.utterances.delete(oldId);
    }
    this.root.scrollTop = this.root.scrollHeight;
  }

  write(id, token) {
    const utterance = this.utterances.get(id);
    if (!utterance) return;
    utterance.text += token;
    this.lay(utterance);
  }

  /** Take words with their times; joined they are the text from its start. */
  words(id, words) {
    const utterance = this.utterances.get(id);
    if (!utterance) return;
    utterance.words.push(...words);
    this.lay(utterance);
  }

  /** Take where playback stands; between two events the page counts on by itself. */
  clock(event, nowS) {
    const utterance = this.utterances.get(event.request_id);
    if (!utterance) return;
    Object.assign(utterance, {
      heardS: event.heard_s,
      pushedS: event.pushed_s,
      playing: event.state === "playing" && event.heard_s < event.pushed_s,
      atS: nowS,
    });
  }

  /** End an utterance: heard to its end, or cut. */
  end(id, finished) {
    const utterance = this.utterances.get(id);
    if (!utterance) return;
    utterance.done = true;
    utterance.playing = false;
    if (finished) utterance.heardS = Infinity;
    utterance.marked = false;
    this.mark(performance.now() / 1000);
    if (!finished) cut(utterance.node);
    utterance.node.classList.add("past");
  }

  fail(id, message) {
    const utterance = this.utterances.get(id);
    const node = document.createElement("p");
    node.className = "error";
    node.textContent = message;
    if (utterance) utterance.done = true;
    this.root.append(node);
  }

  speaking() {
    return [...this.utterances.values()].some((one) => !one.done && one.heardS > 0);
  }

  /** How many words of an utterance have been heard. */
  heardWords(id) {
    const utterance = this.utterances.get(id);
    return utterance ? utterance.spans.filter((span) => span.classList.contains("heard")).length : 0;
  }

  lay(utterance) {
    const timed = utterance.words.map((word) => word.text);
    const rest = utterance.text.slice(timed.join("").length);
    const pieces = [...timed, ...(rest ? rest.match(/\S+\s*|\s+/g) : [])];
    utterance.spans = pieces.map((piece) => {
      const span = document.createElement("span");
      span.className = "word";
      span.textContent = piece.trimEnd();
      return span;
    });
    utterance.node.replaceChildren(...utterance.spans.flatMap((span) => [span, " "]));
    this.root.scrollTop = this.root.scrollHeight;
  }

  mark(nowS) {
    for (const utterance of this.utterances.values()) {
      if (utterance.marked) continue;
      utterance.marked = utterance.done;
      const since = utterance.playing ? nowS - utterance.atS : 0;
      const heardS = Math.min(utterance.heardS + since, utterance.pushedS ?? Infinity);
      utterance.spans.forEach((span, i) => {
        const word = utterance.words[i];
        const over = utterance.heardS === Infinity;
        span.classList.toggle("heard", over || Boolean(word && word.start_s <= heardS && heardS > 0));
        const now = !over && !utterance.done && word && word.start_s <= heardS && heardS < word.end_s;
        span.classList.toggle("now", Boolean(now && heardS > 0));
      });
    }
  }
}

function cut(node) {
  const sign = document.createElement("span");
  sign.className = "cut";
  sign.textContent = " — interrupted";
  node.append(sign);
}
