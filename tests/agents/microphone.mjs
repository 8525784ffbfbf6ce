// Drives the caller page in headless Chromium whose microphone is a WAV file: joins an agent's room,
// waits for its greeting, talks, and records what the page plays.
// Usage: node microphone.mjs '{"modules", "chromium", "address", "wav", "talkMs", "out"}'
// Writes JSON to `out`: {pcm: base64 of 24 kHz s16le, talkAtS: where in it the WAV began, captions}.

import { createRequire } from "node:module";
import { writeFileSync } from "node:fs";

const setup = JSON.parse(process.argv[2]);
const { chromium } = createRequire(`${setup.modules}/`)("playwright-core");
const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--no-first-run",
  "--disable-background-networking",
  "--autoplay-policy=no-user-gesture-required",
  "--use-fake-ui-for-media-stream",
  "--use-fake-device-for-media-stream",
  `--use-file-for-fake-audio-capture=${setup.wav}%noloop`,
];
const QUIET_S = 1.0;

/** Runs in the page: keep every sample of the agent's track as 24 kHz floats. */
async function record() {
  const code = `registerProcessor("tape", class extends AudioWorkletProcessor {
    process(inputs) { const one = inputs[0][0]; if (one) this.port.postMessage(one.slice()); return true; }
  })`;
  const context = new AudioContext({ sampleRate: 24000 });
  await context.audioWorklet.addModule(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
  const tape = new AudioWorkletNode(context, "tape");
  Object.assign(window, { tape: [], taped: 0, loudAt: 0, wasLoud: false });
  tape.port.onmessage = ({ data }) => {
    window.tape.push(data);
    window.taped += data.length;
    if (data.some((value) => Math.abs(value) > 0.02)) [window.loudAt, window.wasLoud] = [window.taped, true];
  };
  const { track } = window.playhead.call;
  context.createMediaStreamSource(new MediaStream([track.mediaStreamTrack])).connect(tape);
  tape.connect(context.destination);
}

/** Runs in the page: the recording as base64 of s16le. */
function recording() {
  const pcm = new Int16Array(window.taped);
  let at = 0;
  for (const block of window.tape) for (const value of block) pcm[at++] = Math.max(-1, Math.min(1, value)) * 32767;
  const bytes = new Uint8Array(pcm.buffer);
  let text = "";
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return btoa(text);
}

const browser = await chromium.launch({ executablePath: setup.chromium, args: FLAGS });
try {
  const page = await browser.newPage();
  await page.goto(setup.address);
  await page.click("#join");
  await page.waitForSelector("#talk:not([disabled])", { timeout: 60000 });
  await page.evaluate(record);
  const quiet = (s) => window.wasLoud && window.taped - window.loudAt > s * 24000;
  await page.waitForFunction(quiet, QUIET_S, { timeout: 60000 });
  const talkAtS = await page.evaluate(() => window.taped / 24000);
  await page.click("#talk");
  await page.waitForSelector('#talk[aria-pressed="true"]');
  await page.waitForTimeout(setup.talkMs);
  await page.waitForFunction(quiet, 3, { timeout: 60000 });
  const captions = await page.evaluate(() => document.getElementById("captions").innerText);
  writeFileSync(setup.out, JSON.stringify({ pcm: await page.evaluate(recording), talkAtS, captions }));
} finally {
  await browser.close();
}
