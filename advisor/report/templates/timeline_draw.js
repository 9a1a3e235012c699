// Draws the visible part of the timeline. Events narrower than a pixel are merged into columns whose strength is their
// coverage, so that the number of rectangles is bounded by the pixels and not by the events.
"use strict";
(() => {
  const model = window.cga.timeline;
  if (!model) return;
  const ROW = 17, AXIS = 24, HEAD = 19, GAP = 7, MAX_LEVELS = 8;
  const canvas = document.getElementById("tl-canvas");
  const context = canvas.getContext("2d");
  const view = { start: 0, end: model.length, width: 0, height: 0, levels: false, hover: null, pinned: null, rows: [], colors: {} };

  function readColors() {
    for (const name of ["bg", "panel", "sunk", "text", "soft", "line", "busy", "launch", "sync", "input", "device", "profiler", "unknown", "op", "range", "call", "copy", "focus"]) {
      view.colors[name] = window.cga.color(name);
    }
  }
  // A level that is one Python frame from end to end says nothing about the step: it is the program around the loop.
  function isWrapper(row) {
    if (row.lane.kind !== "cpu") return false;
    const { duration } = row.lane;
    const longest = row.index.reduce((best, i) => (duration[i] > duration[best] ? i : best), row.index[0]);
    if (duration[longest] > 0.999 * model.length) return true;  // the step is inside it: the loop, the program
    return duration[longest] > 0.85 * model.length && /\(\d+\): |^</.test(model.nameOf(row.lane, longest));
  }
  function layout() {
    let y = AXIS;
    view.rows = [];
    view.hidden = 0;
    view.heads = [];
    let group = "now";
    for (const lane of model.all) {
      if (!lane.count) continue;
      if (lane.group !== group) { group = lane.group; y += 10; view.split = y - 6; }
      const shown = view.levels ? lane.rows : lane.rows.filter((row) => !isWrapper(row)).slice(0, MAX_LEVELS);
      if (!shown.length) { view.hidden += lane.rows.length; continue; }
      view.heads.push({ y, text: lane.label + (shown.length < lane.rows.length ? ` (${lane.rows.length - shown.length} more levels)` : "") });
      y += HEAD;
      view.hidden += lane.rows.length - shown.length;
      for (const row of shown) { view.rows.push({ ...row, y }); y += ROW; }
      y += GAP;
    }
    view.height = y + 2;
    canvas.style.height = view.height + "px";
  }
  function resize() {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    view.width = canvas.clientWidth || 600;
    canvas.width = Math.round(view.width * ratio);
    canvas.height = Math.round(view.height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }
  const x = (time) => ((time - view.start) / (view.end - view.start)) * view.width;

  function drawAxis() {
    const span = view.end - view.start;
    const rough = span / Math.max(2, view.width / 110);
    const power = 10 ** Math.floor(Math.log10(rough));
    const every = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (let time = Math.ceil(view.start / every) * every; time <= view.end; time += every) {
      const at = Math.round(x(time)) + 0.5;
      context.strokeStyle = view.colors.line;
      context.beginPath(); context.moveTo(at, AXIS - 6); context.lineTo(at, view.height); context.stroke();
      context.fillStyle = view.colors.soft;
      if (at < view.width - 46) context.fillText(time === 0 ? "0" : window.cga.ns(time), at + 3, 10);
    }
  }
  function drawRow(row) {
    const { lane, index } = row;
    const { start, duration } = lane;
    const scale = view.width / (view.end - view.start);
    let column = -1, covered = 0, longest = 0, tone = "";
    const flush = () => {
      if (column < 0) return;
      context.globalAlpha = Math.min(1, 0.45 + 0.55 * covered);
      context.fillStyle = view.colors[tone];
      context.fillRect(column, row.y, 1, ROW - 2);
      context.globalAlpha = 1;
      column = -1;
    };
    for (let k = model.firstAt(row, view.start); k < index.length; k++) {
      const i = index[k];
      if (start[i] > view.end) break;
      const left = (start[i] - view.start) * scale, wide = duration[i] * scale;
      if (left + wide < 0) continue;
      if (wide < 1) {
        const at = Math.floor(left);
        if (at !== column) { flush(); column = at; covered = 0; longest = -1; }
        covered += wide;
        if (duration[i] > longest) { longest = duration[i]; tone = model.toneOf(lane, i); }
        continue;
      }
      flush();
      drawEvent(row, i, Math.max(left, -2), Math.min(left + wide, view.width + 2));
    }
    flush();
  }
  function drawEvent(row, i, left, right) {
    const tone = model.toneOf(row.lane, i);
    context.fillStyle = view.colors[tone];
    context.fillRect(left, row.y, right - left - (right - left > 3 ? 0.6 : 0), ROW - 2);
    const room = right - Math.max(left, 0) - 8;
    if (room < 24) return;
    const text = model.nameOf(row.lane, i);
    const fits = Math.floor(room / 6.1);
    // Text on the palette's colours is near-black in both themes; ranges and ops are theme colours with the theme's text.
    context.fillStyle = tone === "op" || tone === "range" || tone === "call" || tone === "unknown" ? view.colors.text : "#16191e";
    context.font = "11px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
    context.fillText(text.length <= fits ? text : text.slice(0, Math.max(fits - 1, 1)) + "…", Math.max(left, 0) + 4, row.y + ROW / 2 - 1);
  }
  function rowFor(lane, i) {
    const depth = lane.depth ? lane.depth[i] : 0;
    return view.rows.find((row) => row.lane === lane && row.depth === depth);
  }
  function outline(lane, i) {
    const row = rowFor(lane, i);
    if (!row) return;
    context.strokeStyle = view.colors.text;
    context.lineWidth = 1.5;
    const left = x(lane.start[i]), wide = Math.max(x(lane.start[i] + lane.duration[i]) - left, 2);
    context.strokeRect(left, row.y - 0.5, wide, ROW - 1);
    context.lineWidth = 1;
  }
  function drawLinks(event) {
    const found = model.linksOf(event.lane, event.i);
    outline(event.lane, event.i);
    if (!found) return;
    const [[launchLane, launch], items] = found;
    const from = rowFor(launchLane, launch);
    if (!from) return;
    const x0 = x(launchLane.start[launch] + launchLane.duration[launch]), y0 = from.y + ROW - 3;
    context.strokeStyle = view.colors.text;
    context.fillStyle = view.colors.text;
    const every = Math.max(1, Math.ceil(items.length / 60));
    for (let k = 0; k < items.length; k += every) {
      const [lane, i] = items[k];
      const to = rowFor(lane, i);
      if (!to) continue;
      const x1 = x(lane.start[i]), y1 = to.y - 1, middle = (y0 + y1) / 2;
      context.beginPath(); context.moveTo(x0, y0); context.bezierCurveTo(x0, middle, x1, middle, x1, y1 - 4); context.stroke();
      context.beginPath(); context.moveTo(x1, y1); context.lineTo(x1 - 3.5, y1 - 6); context.lineTo(x1 + 3.5, y1 - 6); context.fill();
      if (items.length === 1) outline(lane, i);
    }
    outline(launchLane, launch);
  }
  function draw() {
    context.fillStyle = view.colors.panel;
    context.fillRect(0, 0, view.width, view.height);
    drawAxis();
    for (const row of view.rows) drawRow(row);
    context.font = "12px system-ui, sans-serif";
    for (const head of view.heads) {
      const wide = context.measureText(head.text).width;
      context.fillStyle = view.colors.panel;
      context.fillRect(0, head.y, wide + 8, HEAD - 2);
      context.fillStyle = view.colors.soft;
      context.fillText(head.text, 1, head.y + HEAD / 2);
    }
    if (view.split) { context.strokeStyle = view.colors.soft; context.beginPath(); context.moveTo(0, view.split); context.lineTo(view.width, view.split); context.stroke(); }
    for (const event of [view.pinned, view.hover]) if (event) drawLinks(event);
  }
  let queued = false;
  function redraw() {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => { queued = false; draw(); });
  }
  // The event under a point: exact first, else the nearest within 3 pixels, so that thin ones can be hit.
  function hit(px, py) {
    const row = view.rows.find((one) => py >= one.y && py < one.y + ROW);
    if (!row) return null;
    const perPixel = (view.end - view.start) / view.width;
    const time = view.start + px * perPixel, slack = 3 * perPixel;
    let best = null, distance = Infinity;
    for (let k = model.firstAt(row, time - slack); k < row.index.length; k++) {
      const i = row.index[k], begin = row.lane.start[i], end = begin + row.lane.duration[i];
      if (begin > time + slack) break;
      const off = time < begin ? begin - time : time > end ? time - end : 0;
      if (off < distance || (off === distance && off === 0)) { best = i; distance = off; }
    }
    return best === null || distance > slack ? null : { lane: row.lane, i: best };
  }
  window.cga.tl = { view, canvas, readColors, layout, resize, draw, redraw, hit };
})();
