// A small client of the speech WebSocket, for browsers and for Node 22 or newer (older: pass a
// WebSocket class). Protocol: docs/websocket.md.
//
//     const client = new SpeechSocket("ws://127.0.0.1:8880/v1/audio/speech/ws", {
//       onAudio: (name, samples, startSample) => player.push(samples), // Int16Array, 24 kHz mono
//       onEvent: (event) => console.log(event),
//     });
//     await client.opened;
//     const speech = client.start("greeting", { voice: "nova" });
//     speech.append("Hello "); speech.append("there."); speech.end();
//     const done = await speech.done; // or speech.cancel() at any moment

const PROTOCOL = "playhead.speech.v1";
const HEADER_BYTES = 16;

export class SpeechSocket {
  constructor(url, { onAudio, onEvent, key, WebSocketClass = globalThis.WebSocket } = {}) {
    const protocols = key ? [PROTOCOL, `playhead.key.${key}`] : [PROTOCOL];
    this.onAudio = onAudio ?? (() => {});
    this.onEvent = onEvent ?? (() => {});
    this.utterances = new Map();
    this.names = new Map(); // number -> name
    this.socket = new WebSocketClass(url, protocols);
    this.socket.binaryType = "arraybuffer";
    this.opened = new Promise((resolve, reject) => {
      this.socket.onerror = () => reject(new Error("the connection failed"));
      this.socket.onmessage = ({ data }) => this.#take(data, resolve);
    });
    this.socket.onclose = ({ code, reason }) => {
      for (const each of this.utterances.values()) each.fail(new Error(`closed: ${code} ${reason}`));
    };
  }

  start(name, controls = {}) {
    const utterance = new Utterance(this, name);
    this.utterances.set(name, utterance);
    this.send({ type: "utterance.start", utterance: name, ...controls });
    return utterance;
  }

  send(message) {
    this.socket.send(JSON.stringify(message));
  }

  close() {
    this.socket.close(1000);
  }

  #take(data, resolveOpened) {
    if (typeof data !== "string") {
      const view = new DataView(data);
      const name = this.names.get(view.getUint32(4, true));
      const startSample = Number(view.getBigUint64(8, true));
      this.onAudio(name, new Int16Array(data, HEADER_BYTES), startSample);
      return;
    }
    const event = JSON.parse(data);
    if (event.type === "session.created") resolveOpened(event);
    if (event.type === "utterance.created") this.names.set(event.number, event.utterance);
    this.onEvent(event);
    if (event.type === "utterance.done") {
      this.utterances.get(event.utterance)?.finish(event);
      this.utterances.delete(event.utterance);
    } else if (event.type === "error" && event.utterance) {
      this.utterances.get(event.utterance)?.problems.push(event.error);
    }
  }
}

class Utterance {
  #sequence = 0;

  constructor(client, name) {
    this.client = client;
    this.name = name;
    this.problems = []; // what the server refused of it
    this.done = new Promise((resolve, reject) => {
      this.finish = resolve;
      this.fail = reject;
    });
    this.done.catch(() => {});
  }

  append(text) {
    this.#text({ type: "text.append", text });
  }

  flush() {
    this.#text({ type: "text.flush" });
  }

  end() {
    this.#text({ type: "text.end" });
  }

  cancel() {
    this.client.send({ type: "utterance.cancel", utterance: this.name });
  }

  report(playedSamples, state = "playing") {
    const played = { utterance: this.name, played_samples: playedSamples, state };
    this.client.send({ type: "playback.report", ...played });
  }

  #text(message) {
    this.client.send({ ...message, utterance: this.name, sequence: this.#sequence++ });
  }
}
