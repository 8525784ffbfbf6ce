// Tells the speaker of a room how its listener's receiver is doing, four times a second.
//
//   import { startReceiverReports } from "./playhead-receiver.js";
//   const stop = startReceiverReports(room, remoteAudioTrack);
//
// Each report covers the window since the last one and goes out as a lossy packet on topic
// "playhead.receiver". All values are seconds. Needs livekit-client's Room and RemoteAudioTrack.
// Between start and stop the speaker is told that it is heard: call stop while the listener has it
// muted or unsubscribed, and start again after; nothing is made meanwhile, and nothing is lost.

export const RECEIVER_TOPIC = "playhead.receiver";
const PERIOD_MS = 250;
const RATE_HZ = 48000;

/** Send reports about `track` until the returned function is called. */
export function startReceiverReports(room, track, onReport = () => {}) {
  let last = null;
  tellListening(room, true);
  const timer = setInterval(async () => {
    const totals = await readTotals(track);
    const report = last && totals ? windowReport(last, totals) : null;
    last = totals ?? last;
    if (!report || room.state !== "connected") return;
    onReport(report);
    const payload = new TextEncoder().encode(JSON.stringify(report));
    room.localParticipant
      .publishData(payload, { reliable: false, topic: RECEIVER_TOPIC })
      .catch(() => {}); // lossy by design: the next one comes in 250 ms
  }, PERIOD_MS);
  return () => {
    clearInterval(timer);
    tellListening(room, false);
  };
}

function tellListening(room, listening) {
  if (room.state !== "connected") return;
  const payload = new TextEncoder().encode(JSON.stringify({ listening }));
  room.localParticipant
    .publishData(payload, { reliable: true, topic: RECEIVER_TOPIC })
    .catch(() => {}); // the room is closing
}

/** Sums since the track began, from the browser's own counters; null before there are any. */
async function readTotals(track) {
  const stats = await track.receiver?.getStats();
  if (!stats) return null;
  const totals = { rttS: 0, playoutDelay: 0, playoutCount: 0 };
  stats.forEach((entry) => {
    if (entry.type === "inbound-rtp") {
      totals.delay = entry.jitterBufferDelay;
      totals.target = entry.jitterBufferTargetDelay ?? entry.jitterBufferDelay;
      totals.emitted = entry.jitterBufferEmittedCount;
      totals.concealed = entry.concealedSamples - (entry.silentConcealedSamples ?? 0);
    } else if (entry.type === "media-playout") {
      totals.playoutDelay = entry.totalPlayoutDelay;
      totals.playoutCount = entry.totalSamplesCount;
    } else if (entry.type === "candidate-pair" && entry.nominated) {
      totals.rttS = entry.currentRoundTripTime ?? 0;
    }
  });
  return totals.emitted === undefined ? null : totals;
}

/** The report of the window between two readings; null if nothing was played in it. */
export function windowReport(last, now) {
  const emitted = now.emitted - last.emitted;
  if (emitted <= 0) return null;
  const played = now.playoutCount - last.playoutCount;
  return {
    jitter_buffer_s: round((now.delay - last.delay) / emitted),
    target_s: round((now.target - last.target) / emitted),
    rtt_s: round(now.rttS),
    playout_s: played > 0 ? round((now.playoutDelay - last.playoutDelay) / played) : 0,
    concealed_s: round(Math.max(now.concealed - last.concealed, 0) / RATE_HZ),
    audio_s: round(emitted / RATE_HZ),
  };
}

function round(seconds) {
  return Math.round(seconds * 1e4) / 1e4;
}
