// The launch plots. plotly.js lies in the page deflated; it is inflated and run when the plots come near, so the page is
// usable before it.
"use strict";
(() => {
  const data = window.cga.data("launches"), packed = document.getElementById("plotly-deflated");
  if (!data || !packed) return;
  const boxes = data.plots.map((plot) => document.getElementById("plot-" + plot.id));
  let loading = null;

  async function load() {
    const bytes = Uint8Array.from(atob(packed.textContent), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    packed.remove();
  }
  const color = (name) => window.cga.color(name);

  function axis(title, extra = {}) {
    return { title: { text: title, font: { size: 12 } }, gridcolor: color("line"), linecolor: color("line"), zerolinecolor: color("line"), automargin: true, ...extra };
  }
  function frame(extra) {
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: color("text"), family: "system-ui, sans-serif", size: 12 },
      margin: { l: 56, r: 12, t: 8, b: 44 }, showlegend: false, hoverlabel: { align: "left" }, ...extra,
    };
  }
  const safe = (text) => text.replace(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]);  // plotly reads tags in labels
  // A name's head says least: return type, namespaces. What is cut is in the table.
  const bare = (text) => text.replace(/^(void|static|inline) /, "").replace(/\(anonymous namespace\)::/g, "").replace(/\bat::native::/g, "");
  const short = (text) => { const name = bare(text); return safe(name.length > 60 ? name.slice(0, 59) + "…" : name); };
  // Powers of ten only, in words: plotly's own log ticks add a 2 and a 5 that collide in a narrow plot.
  const ticks = { tickvals: [0.001, 0.01, 0.1, 1, 10, 100, 1e3, 1e4, 1e5, 1e6], ticktext: ["1 ns", "10 ns", "100 ns", "1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s"] };

  const makers = {
    scatter(plot) {
      const left = Math.min(...plot.x) / 2, right = Math.max(...plot.x) * 2, top = Math.max(...plot.y) * 2, bottom = Math.min(left, ...plot.y) / 1.5;
      const range = (low, high) => [Math.log10(low), Math.log10(high)], exit = Math.min(right, top);
      return [[
        { type: "scatter", mode: "lines", x: [left, right], y: [left, right], line: { color: color("soft"), dash: "dash", width: 1.5 }, hoverinfo: "skip" },
        { type: "scatter", mode: "markers", x: plot.x, y: plot.y, text: plot.name_ids.map((i) => short(plot.names[i])),
          marker: { size: 5, opacity: 0.5, color: plot.x.map((value, i) => (plot.y[i] > value ? color("launch") : color("busy"))) },
          hovertemplate: "%{text}<br>runs %{x:.3g} µs, issued in %{y:.3g} µs<extra></extra>" },
      ], frame({ xaxis: axis("item time", { type: "log", range: range(left, right), ...ticks }), yaxis: axis("issue time", { type: "log", range: range(bottom, top), ...ticks }),
        annotations: [{ x: Math.log10(exit), y: Math.log10(exit), text: "break-even", showarrow: false, xanchor: "right", yanchor: "top", xshift: -6, yshift: -6, font: { size: 11, color: color("soft") } }] })];
    },
    gaps(plot) {
      const left = plot.edges.slice(0, -1), right = plot.edges.slice(1);
      const middle = left.map((edge, i) => Math.sqrt(Math.max(edge, 1e-4) * right[i]));
      return [[{ type: "bar", x: middle, y: plot.counts, width: left.map((edge, i) => right[i] - edge), marker: { color: color("launch") },
        customdata: left.map((edge, i) => `${edge.toPrecision(3)} to ${right[i].toPrecision(3)} µs`), hovertemplate: "%{y} gaps of %{customdata}<extra></extra>" }],
      frame({ bargap: 0.04, xaxis: axis("gap", { type: "log", ...ticks }), yaxis: axis("gaps") })];
    },
    depth(plot) {
      return [[{ type: "scatter", mode: "lines", x: plot.x, y: plot.y, line: { shape: "hv", color: color("busy"), width: 1.5 }, fill: "tozeroy",
        hovertemplate: "%{y} queued at %{x:.4g} µs<extra></extra>" }], frame({ xaxis: axis("µs from the step's first item"), yaxis: axis("items queued", { rangemode: "tozero", tickformat: ",d", ...(Math.max(...plot.y) <= 8 ? { dtick: 1 } : {}) }) })];
    },
    kernels(plot) {
      const ranks = plot.names.map((name, i) => `${i + 1}`), hover = plot.names.map((name, i) => [short(name), plot.count[i]]);
      return [[
        { type: "bar", orientation: "h", x: plot.total, y: ranks, marker: { color: color("busy"), opacity: 0.42 }, customdata: hover,
          hovertemplate: "%{customdata[0]}<br>%{x:.4g} µs over %{customdata[1]} items<extra></extra>" },
        { type: "scatter", mode: "text", x: plot.total.map(() => 0), y: ranks, text: plot.names.map(short), textposition: "middle right",
          textfont: { size: 11, color: color("text") }, hoverinfo: "skip" },
      ], frame({ xaxis: axis("total µs", { rangemode: "tozero" }), yaxis: axis("", { type: "category", autorange: "reversed", tickfont: { size: 11 } }) })];
    },
  };
  function drawAll() {
    data.plots.forEach((plot, i) => {
      const [traces, layout] = makers[plot.id](plot);
      window.Plotly.react(boxes[i], traces, layout, { responsive: true, displayModeBar: false });
    });
  }
  function start() {
    loading ||= load().then(drawAll).catch((problem) => {
      for (const box of boxes) box.textContent = `This browser could not draw the plot (${problem.message}); the figures are in the tables.`;
    });
    return loading;
  }
  const watcher = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) { watcher.disconnect(); start(); }
  }, { rootMargin: "600px" });
  boxes.forEach((box) => watcher.observe(box));
  window.cga.themeListeners.push(() => { if (window.Plotly) drawAll(); });
  window.addEventListener("beforeprint", start);
  window.cga.plots = { start };
})();
