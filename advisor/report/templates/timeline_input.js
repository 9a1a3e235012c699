// Zoom, pan, hover and the keyboard of the timeline; links from lines and regions into it.
"use strict";
(() => {
  const tl = window.cga.tl;
  if (!tl) return;
  const model = window.cga.timeline, { view, canvas } = tl;
  const tip = document.getElementById("tl-tip"), label = document.getElementById("tl-range");
  const MIN_SPAN = 200;  // ns: below this there is nothing left to see

  function show(start, end) {
    const span = Math.min(Math.max(end - start, MIN_SPAN), model.length);
    view.start = Math.min(Math.max(start, 0), model.length - span);
    view.end = view.start + span;
    const shown = span >= model.length ? "whole step" : `${window.cga.ns(view.start)} to ${window.cga.ns(view.end)}`;
    label.textContent = `${shown}, ${window.cga.ns(span)} in view`;
    tl.redraw();
  }
  function zoom(factor, at = 0.5) {
    const span = view.end - view.start, pivot = view.start + at * span, after = Math.min(Math.max(span * factor, MIN_SPAN), model.length);
    show(pivot - at * after, pivot + (1 - at) * after);
  }
  const pan = (share) => show(view.start + share * (view.end - view.start), view.end + share * (view.end - view.start));
  const reset = () => show(0, model.length);

  function lineOf(text, tag = "span") {
    const element = document.createElement(tag);
    element.textContent = text;
    if (tag === "span") element.style.display = "block";
    return element;
  }
  function describe(event) {
    const { lane, i } = event;
    const name = model.nameOf(lane, i), length = window.cga.ns(lane.duration[i]);
    const lines = [lineOf(lane.kind === "gap" ? `GPU idle: ${name}` : name, "b")];
    lines.push(lineOf(`${length}, from ${window.cga.ns(lane.start[i])} to ${window.cga.ns(lane.start[i] + lane.duration[i])}`));
    lines.push(lineOf(lane.label));
    const links = model.linksOf(lane, i);
    if (links && lane.kind === "stream") {
      const [launchLane, launch] = links[0];
      lines.push(lineOf(`launched by ${model.nameOf(launchLane, launch)}, started ${window.cga.ns(lane.start[i] - launchLane.start[launch])} after the call began`));
    } else if (links) {
      const [itemLane, item] = links[1][0];
      lines.push(lineOf(links[1].length === 1 ? `launched ${model.nameOf(itemLane, item)}` : `launched ${links[1].length} items`));
    }
    return lines;
  }
  function hover(event, px, py) {
    view.hover = event;
    tip.hidden = !event;
    if (event) {
      tip.replaceChildren(...describe(event));
      const room = view.width - tip.offsetWidth - 4;
      tip.style.left = Math.max(0, Math.min(px + 14, room)) + "px";
      tip.style.top = py + 18 + "px";
    }
    tl.redraw();
  }

  let drag = null;
  canvas.addEventListener("wheel", (event) => {
    // The page scrolls over the timeline as anywhere else until the timeline is in use.
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / view.width);
    else zoom(Math.exp(Math.max(-400, Math.min(400, event.deltaY)) * 0.0022), event.offsetX / view.width);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    drag = { x: event.offsetX, start: view.start, end: view.end, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) return hover(tl.hit(event.offsetX, event.offsetY), event.offsetX, event.offsetY);
    const by = ((drag.x - event.offsetX) / view.width) * (drag.end - drag.start);
    if (Math.abs(drag.x - event.offsetX) > 3) { drag.moved = true; canvas.classList.add("dragging"); tip.hidden = true; }
    if (drag.moved) show(drag.start + by, drag.end + by);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved) { view.pinned = tl.hit(event.offsetX, event.offsetY); tl.redraw(); }
    drag = null;
    canvas.classList.remove("dragging");
  });
  canvas.addEventListener("pointerleave", () => { if (!drag) hover(null); });
  canvas.addEventListener("keydown", (event) => {
    const actions = {
      "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), "_": () => zoom(1 / 0.6), "0": reset,
      ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), ArrowUp: () => zoom(0.6), ArrowDown: () => zoom(1 / 0.6),
      Escape: () => { view.pinned = null; hover(null); canvas.blur(); },
    };
    if (!actions[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[event.key]();
  });
  for (const button of document.querySelectorAll("[data-tl]")) {
    const action = { in: () => zoom(0.6), out: () => zoom(1 / 0.6), reset }[button.dataset.tl];
    if (action) button.addEventListener("click", action);
    else button.addEventListener("change", () => { view.levels = button.checked; tl.layout(); tl.resize(); tl.redraw(); });
  }
  for (const button of document.querySelectorAll(".zoom")) {
    button.addEventListener("click", () => {
      const start = Number(button.dataset.start), end = Number(button.dataset.end), margin = 0.06 * (end - start);
      show(start - margin, end + margin);
      document.getElementById("timeline").scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
      canvas.focus({ preventScroll: true });
    });
  }
  window.cga.themeListeners.push(() => { tl.readColors(); tl.redraw(); });
  new ResizeObserver(() => { tl.resize(); tl.draw(); }).observe(canvas.parentElement);
  tl.readColors();
  tl.layout();
  document.querySelector('[data-tl="levels"]').closest("label").hidden = view.hidden === 0;
  tl.resize();
  tl.draw();
  reset();
  Object.assign(tl, { show, zoom, hover, describe });
})();
