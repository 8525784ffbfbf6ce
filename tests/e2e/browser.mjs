// Drives the caller page in headless Chromium: join, speak a text, record what the browser plays.
// Usage: node browser.mjs '{"modules", "chromium", "address", "text", "out", "screenshot"?, "interruptAfterMs"?}'
// Writes JSON to `out`: {pcm: base64 of 24 kHz s16le, recordedAtMs, heardWords, events, figures}.

import { createRequire } from "node:module";
import { writeFileSync } from "node:fs";

const setup = JSON.parse(process.argv[2]);
const { chromium } = createRequire(`${setup.modules}/`)("playwright-core");
const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--autoplay-policy=no-user-gesture-required",
];

/** Runs in the page: keep every sample of the speaker's track as 24 kHz floats. */
async function record() {
  const code = `registerProcessor("tape", class extends AudioWorkletProcessor {
    process(inputs) { const one = inputs[0][0]; if (one) this.port.postMessage(one.slice()); return true; }
  })`;
  const context = new AudioContext({ sampleRate: 24000 });
  await context.audioWorklet.addModule(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
  const tape = new AudioWorkletNode(context, "tape");
  window.tape = [];
  tape.port.onmessage = (event) => window.tape.push(event.data);
  const { track } = window.playhead.call;
  context.createMediaStreamSource(new MediaStream([track.mediaStreamTrack])).connect(tape);
  tape.connect(context.destination);
}

/** Runs in the page: the recording as base64 of s16le. */
function recording() {
  const length = window.tape.reduce((sum, block) => sum + block.length, 0);
  const pcm = new Int16Array(length);
  let at = 0;
  for (const block of window.tape) {
    for (const value of block) pcm[at++] = Math.max(-1, Math.min(1, value)) * 32767;
  }
  const bytes = new Uint8Array(pcm.buffer);
  let text = "";
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return btoa(text);
}

const browser = await chromium.launch({ executablePath: setup.chromium, args: FLAGS });
try {
  const page = await browser.newPage({ viewport: { width: 1100, height: 940 } });
  const problems = [];
  page.on("pageerror", (error) => problems.push(String(error)));
  await page.goto(setup.address);
  await page.click("#join");
  await page.waitForSelector("#speak:not([disabled])", { timeout: 40000 });
  await page.evaluate(record);
  await page.waitForFunction(() => window.tape.length > 50, null, { timeout: 20000 });
  await page.evaluate(() => {
    window.seen = [];
    window.playhead.call.room.on("dataReceived", (data, who, kind, topic) => {
      if (topic === "playhead.events") window.seen.push(JSON.parse(new TextDecoder().decode(data)));
    });
  });
  const id = await page.evaluate((text) => window.playhead.speak(text), setup.text);
  if (setup.screenshot) {
    await page.waitForTimeout(setup.screenshotAfterMs ?? 3000);
    await page.screenshot({ path: setup.screenshot });
  }
  let heard = null;
  if (setup.interruptAfterMs) {
    await page.waitForTimeout(setup.interruptAfterMs);
    heard = await page.evaluate(() => window.playhead.interrupt());
  }
  await page.waitForFunction(
    (id) => window.seen.some((e) => e.request_id === id && ["finished", "interrupted", "error"].includes(e.type)),
    id,
    { timeout: 60000 },
  );
  await page.waitForTimeout(800);
  const result = {
    pcm: await page.evaluate(recording),
    heardWords: await page.evaluate((id) => window.playhead.captions.heardWords(id), id),
    events: await page.evaluate(() => window.seen),
    figures: await page.evaluate(() =>
      Object.fromEntries([...document.querySelectorAll(".figure")].map((n) => [n.children[1].textContent, n.children[0].textContent])),
    ),
    heard,
    problems,
  };
  writeFileSync(setup.out, JSON.stringify(result));
} finally {
  await browser.close();
}
