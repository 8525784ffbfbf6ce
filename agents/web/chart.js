// Draws the playback clock: audio handed to the sender, audio heard, and the slack between.

const WINDOW_S = 14;
const DRAW_MS = 66; // the audio of a call deserves the processor more than its picture
const COLORS = { pushed: "#5aa9ff", heard: "#37d6a0", slack: "#ffb454", grid: "#222b38", ink: "#93a1b5" };

export class ClockChart {
  /** Points are {atS, pushedS, heardS, slackS}, atS on this page's clock. */
  constructor(canvas) {
    this.canvas = canvas;
    this.points = [];
    setInterval(() => {
      if (!document.hidden) this.draw(performance.now() / 1000);
    }, DRAW_MS);
  }

  add(point) {
    this.points.push(point);
    const oldest = point.atS - WINDOW_S - 1;
    while (this.points.length && this.points[0].atS < oldest) this.points.shift();
  }

  draw(nowS) {
    const { canvas } = this;
    const scale = window.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const plot = { left: 44, right: width - 44, top: 10, bottom: height - 22 };
    const topS = Math.max(2, ...this.points.map((point) => point.pushedS)) * 1.08;
    const toX = (atS) => plot.right - ((nowS - atS) / WINDOW_S) * (plot.right - plot.left);
    const toY = (s) => plot.bottom - (s / topS) * (plot.bottom - plot.top);
    const toSlackY = (s) => plot.bottom - (Math.min(Math.max(s, 0), 2) / 2) * (plot.bottom - plot.top);
    this.grid(pen, plot, topS, toY, toX, nowS);
    pen.save();
    pen.beginPath();
    pen.rect(plot.left, 0, plot.right - plot.left, height);
    pen.clip();
    for (const run of runs(this.points)) {
      area(pen, run, toX, toY);
      line(pen, run, toX, (point) => toSlackY(point.slackS), COLORS.slack, 1.5);
      line(pen, run, toX, (point) => toY(point.pushedS), COLORS.pushed, 2.2);
      line(pen, run, toX, (point) => toY(point.heardS), COLORS.heard, 2.2);
    }
    pen.restore();
  }

  grid(pen, plot, topS, toY, toX, nowS) {
    pen.strokeStyle = COLORS.grid;
    pen.fillStyle = COLORS.ink;
    pen.lineWidth = 1;
    pen.font = "11px system-ui, sans-serif";
    const stepS = topS > 20 ? 10 : topS > 8 ? 4 : topS > 4 ? 2 : 1;
    pen.textAlign = "right";
    for (let s = 0; s <= topS; s += stepS) {
      pen.beginPath();
      pen.moveTo(plot.left, toY(s));
      pen.lineTo(plot.right, toY(s));
      pen.stroke();
      pen.fillText(`${s} s`, plot.left - 6, toY(s) + 4);
    }
    pen.fillStyle = COLORS.slack;
    pen.textAlign = "left";
    for (const s of [0, 1, 2]) {
      const y = plot.bottom - (s / 2) * (plot.bottom - plot.top);
      pen.fillText(`${s} s`, plot.right + 6, y + 4);
    }
    pen.fillStyle = COLORS.ink;
    pen.textAlign = "center";
    for (let ago = 0; ago <= WINDOW_S; ago += 2) {
      pen.fillText(ago ? `−${ago} s` : "now", toX(nowS - ago), plot.bottom + 17);
    }
  }
}

/** Cut the points where a new utterance begins or reports were missing. */
function runs(points) {
  const cut = [];
  let run = [];
  for (const point of points) {
    const last = run.at(-1);
    if (last && (point.pushedS < last.pushedS || point.atS - last.atS > 1)) {
      cut.push(run);
      run = [];
    }
    run.push(point);
  }
  return [...cut, run].filter((one) => one.length > 1);
}

function line(pen, run, toX, toY, color, width) {
  pen.beginPath();
  run.forEach((point, i) => (i ? pen.lineTo(toX(point.atS), toY(point)) : pen.moveTo(toX(point.atS), toY(point))));
  pen.strokeStyle = color;
  pen.lineWidth = width;
  pen.lineJoin = "round";
  pen.stroke();
}

function area(pen, run, toX, toY) {
  pen.beginPath();
  run.forEach((point, i) => {
    const x = toX(point.atS);
    if (i) pen.lineTo(x, toY(point.pushedS));
    else pen.moveTo(x, toY(point.pushedS));
  });
  for (const point of [...run].reverse()) pen.lineTo(toX(point.atS), toY(point.heardS));
  pen.closePath();
  pen.fillStyle = "rgba(90, 169, 255, 0.12)";
  pen.fill();
}
