// The drawn step as typed arrays, in rows that can be searched: one row per lane and depth.
"use strict";
(() => {
  const data = window.cga.data("timeline");
  if (!data) return;

  function decode(lane, group) {
    const count = lane.d.length;
    const start = new Float64Array(count);
    let at = 0;
    for (let i = 0; i < count; i++) start[i] = at += lane.d[i];
    return {
      id: lane.id, label: lane.label, kind: lane.kind, group, count, start,
      duration: Float64Array.from(lane.n), name: Int32Array.from(lane.i),
      depth: lane.p ? Uint16Array.from(lane.p) : null, link: lane.l ? Int32Array.from(lane.l) : null,
    };
  }
  const lanes = data.lanes.map((lane) => decode(lane, "now"));
  const predicted = data.predicted.map((lane) => decode(lane, "graphed"));
  const marks = new Set(data.marks);
  const causes = new Set(data.causes);

  // A row holds the indices of one lane at one depth, in order of time; `reach` is the running maximum of their ends,
  // so that a search finds the first event that can touch a window even where items of a stream overlap.
  function rowsOf(lane) {
    const byDepth = new Map();
    for (let i = 0; i < lane.count; i++) {
      const depth = lane.depth ? lane.depth[i] : 0;
      if (!byDepth.has(depth)) byDepth.set(depth, []);
      byDepth.get(depth).push(i);
    }
    return [...byDepth.entries()].sort((a, b) => a[0] - b[0]).map(([depth, found]) => {
      const index = Int32Array.from(found).sort((a, b) => lane.start[a] - lane.start[b]);
      const reach = new Float64Array(index.length);
      let most = -Infinity;
      for (let k = 0; k < index.length; k++) reach[k] = most = Math.max(most, lane.start[index[k]] + lane.duration[index[k]]);
      return { lane, depth, index, reach };
    });
  }
  const all = [...lanes, ...predicted];
  for (const lane of all) lane.rows = rowsOf(lane);

  // Links: an item names its launch by its position in the launch lanes taken together, in order.
  const launches = [];
  for (const lane of lanes) if (lane.kind === "launch") for (let i = 0; i < lane.count; i++) launches.push([lane, i]);
  const itemsOf = new Map();
  for (const lane of lanes) {
    if (!lane.link) continue;
    for (let i = 0; i < lane.count; i++) {
      if (lane.link[i] < 0) continue;
      const key = launches[lane.link[i]];
      if (!key) continue;
      if (!itemsOf.has(key)) itemsOf.set(key, []);
      itemsOf.get(key).push([lane, i]);
    }
  }
  const launchKey = new Map(launches.map((key) => [key[0].id + "/" + key[1], key]));

  function nameOf(lane, i) {
    return lane.name[i] < 0 ? "cudaGraphLaunch" : data.names[lane.name[i]];
  }
  function toneOf(lane, i) {
    if (lane.kind === "gap") return causes.has(nameOf(lane, i)) ? nameOf(lane, i) : "unknown";
    if (lane.kind === "launch") return "call";
    if (lane.kind === "stream") return /^(Memcpy|Memset|memcpy|memset|\[CUDA mem)/.test(nameOf(lane, i)) ? "copy" : "busy";
    return marks.has(lane.name[i]) || lane.kind === "range" ? "range" : "op";
  }
  // [launch, items] of an event: both ends of its arrows.
  function linksOf(lane, i) {
    if (lane.group === "graphed") return null;
    if (lane.kind === "stream" && lane.link && lane.link[i] >= 0 && launches[lane.link[i]]) {
      return [launches[lane.link[i]], [[lane, i]]];
    }
    if (lane.kind === "launch") {
      const key = launchKey.get(lane.id + "/" + i);
      return itemsOf.has(key) ? [key, itemsOf.get(key)] : null;
    }
    return null;
  }
  // First position of `row` whose events can reach `time`.
  function firstAt(row, time) {
    let low = 0, high = row.index.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (row.reach[middle] < time) low = middle + 1; else high = middle;
    }
    return low;
  }
  window.cga.timeline = { length: data.length, lanes, predicted, all, nameOf, toneOf, linksOf, firstAt };
})();
