// The caller page: join a room, send text as a language model would write it, hear and see it spoken.

import { ClockChart } from "./chart.js";
import { Captions } from "./captions.js";
import { startReceiverReports } from "./playhead-receiver.js";

const TEXT_TOPIC = "playhead.text";
const EVENTS_TOPIC = "playhead.events";
const CAPTION_TOPIC = "lk.transcription";
const TOKEN_MS = 30;
const AUDIBLE_PEAK = 0.015;
const SPEAKER_LIMIT_MS = 20000;
const SAMPLES = {
  "A greeting": "Good morning, and thanks for calling. How can I help you today?",
  "An order": "The package left our warehouse on Monday, and it should be at your door by Friday.",
  "A question": "Would you like me to send you a message when the driver is near?",
  "Something longer":
    "Let me look at the rest of your account. I can see two open orders, and both of them are on " +
    "their way. If you like, I can send them to another address, as long as we do it today.",
};

const $ = (id) => document.getElementById(id);
const chart = new ClockChart($("chart"));
const captions = new Captions($("captions"));
const call = { room: null, speaker: null, track: null, listening: null, requests: 0, stopReports: null };

function status(state, text) {
  $("status").dataset.state = state;
  $("status-text").textContent = text;
}

function figure(id, seconds) {
  $(id).textContent = Number.isFinite(seconds) ? `${Math.round(seconds * 1000)} ms` : "–";
}

async function join() {
  $("join").disabled = true;
  status("busy", "connecting");
  const query = new URLSearchParams(location.search);
  const name = query.get("room") ?? `call-${crypto.randomUUID().slice(0, 8)}`;
  const identity = `caller-${crypto.randomUUID().slice(0, 6)}`;
  const answer = await fetch(`token?${new URLSearchParams({ room: name, identity })}`);
  if (!answer.ok) throw new Error(`no token: ${await answer.text()}`);
  const { url, token } = await answer.json();
  const room = new LivekitClient.Room();
  call.room = room;
  room.on("trackSubscribed", onTrack);
  room.on("dataReceived", (payload, participant, kind, topic) => {
    if (topic === EVENTS_TOPIC) onEvent(JSON.parse(new TextDecoder().decode(payload)));
  });
  room.registerTextStreamHandler(CAPTION_TOPIC, onCaption);
  room.on("reconnecting", () => status("busy", "reconnecting"));
  room.on("reconnected", () => status("ready", "connected"));
  room.on("disconnected", onLeft);
  await room.connect(url, token);
  await room.startAudio();
  status("busy", "waiting for the speaker");
  setTimeout(() => {
    if (call.room === room && !call.speaker) status("error", "no speaker came; is the worker running?");
  }, SPEAKER_LIMIT_MS);
  $("join").disabled = false;
  $("join").textContent = "Leave";
}

function onTrack(track, publication, participant) {
  if (track.kind !== "audio") return;
  call.speaker = participant.identity;
  call.track = track;
  $("audio").replaceChildren(track.attach());
  call.stopReports = startReceiverReports(call.room, track, (report) => {
    figure("f-jitter", report.jitter_buffer_s);
    figure("f-rtt", report.rtt_s);
  });
  listenFor(track);
  status("ready", "connected");
  $("speak").disabled = false;
  $("talk").disabled = false;
  $("interrupt").disabled = false;
}

/** Watch the level of what is really played, for the time from the first token to sound. */
function listenFor(track) {
  const context = new AudioContext();
  const meter = context.createAnalyser();
  meter.fftSize = 1024;
  context.createMediaStreamSource(new MediaStream([track.mediaStreamTrack])).connect(meter);
  const samples = new Float32Array(meter.fftSize);
  const watch = () => {
    if (call.room === null) return void context.close();
    const waiting = call.listening;
    if (waiting) meter.getFloatTimeDomainData(samples);
    if (waiting && samples.some((value) => Math.abs(value) > AUDIBLE_PEAK)) {
      call.listening = null;
      figure("f-first", (performance.now() - waiting.firstTokenMs) / 1000);
    }
    setTimeout(watch, 10);
  };
  watch();
}

/** Send a text in small pieces, as a language model writes it. */
async function speak(text) {
  const requestId = `page-${Date.now().toString(36)}-${++call.requests}`;
  captions.begin(requestId);
  const writer = await call.room.localParticipant.streamText({
    topic: TEXT_TOPIC,
    attributes: { request_id: requestId, seed: "7" },
    destinationIdentities: [call.speaker],
  });
  const quiet = !captions.speaking();
  if (quiet) call.listening = { firstTokenMs: performance.now() };
  for (const token of text.match(/\s*\S{1,5}/g) ?? [text]) {
    await writer.write(token);
    captions.write(requestId, token);
    await new Promise((resolve) => setTimeout(resolve, TOKEN_MS));
  }
  await writer.close();
  return requestId;
}

/** Let the other side hear the caller, or no longer. */
async function talk() {
  const on = $("talk").getAttribute("aria-pressed") !== "true";
  await call.room.localParticipant.setMicrophoneEnabled(on);
  $("talk").setAttribute("aria-pressed", String(on));
}

/** Show what an agent says that sends captions and no events of ours. */
async function onCaption(reader, { identity }) {
  if (identity !== call.speaker || call.hasEvents) return;
  const id = reader.info.attributes["lk.segment_id"] ?? reader.info.id;
  captions.begin(id);
  for await (const piece of reader) captions.write(id, piece);
  captions.end(id, true);
}

async function interrupt() {
  const answer = await call.room.localParticipant.performRpc({
    destinationIdentity: call.speaker,
    method: "playhead.interrupt",
    payload: "{}",
  });
  return JSON.parse(answer || "{}");
}

function onEvent(event) {
  call.hasEvents = true;
  if (event.type === "clock") {
    const nowS = performance.now() / 1000;
    captions.clock(event, nowS);
    chart.add({
      atS: nowS,
      pushedS: event.pushed_s,
      heardS: event.heard_s,
      slackS: event.slack_s,
    });
    figure("f-slack", event.slack_s);
    figure("f-ahead", event.pushed_s - event.heard_s);
    $("f-gaps").textContent = event.gaps ?? 0;
    if (event.state === "playing") status("speaking", "speaking");
  } else if (event.type === "words") {
    captions.words(event.request_id, event.words);
  } else if (event.type === "finished" || event.type === "interrupted") {
    captions.end(event.request_id, event.type === "finished");
    $("f-gaps").textContent = event.gaps;
    if (!captions.speaking()) status("ready", "connected");
  } else if (event.type === "error") {
    captions.fail(event.request_id, event.message);
    status("ready", "connected");
  }
}

function onLeft() {
  call.stopReports?.();
  call.room = call.speaker = call.track = call.stopReports = null;
  call.hasEvents = false;
  $("join").textContent = "Join the call";
  $("join").disabled = false;
  $("speak").disabled = true;
  $("talk").disabled = true;
  $("talk").setAttribute("aria-pressed", "false");
  $("interrupt").disabled = true;
  status("idle", "not connected");
}

function failed(error) {
  status("error", error.message);
  $("join").disabled = false;
}

$("join").addEventListener("click", () => {
  if (call.room) call.room.disconnect();
  else join().catch(failed);
});
$("talk").addEventListener("click", () => talk().catch(failed));
$("interrupt").addEventListener("click", () => interrupt().catch(failed));
$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("text").value.trim();
  if (!text || !call.speaker) return;
  $("text").value = "";
  speak(text).catch(failed);
});
$("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey) return;
  event.preventDefault();
  $("form").requestSubmit();
});
for (const [label, text] of Object.entries(SAMPLES)) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = label;
  button.addEventListener("click", () => {
    if (call.speaker) speak(text).catch(failed);
    else $("text").value = text;
  });
  $("samples").append(button);
}

window.playhead = { join, speak, talk, interrupt, call, captions }; // for the browser test
