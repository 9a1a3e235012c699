// Theme, copy buttons, opening and sorting rows. Everything here works on the markup alone.
"use strict";
window.cga = {
  data(id) {
    const element = document.getElementById("data-" + id);
    return element ? JSON.parse(element.textContent) : null;
  },
  // The colour a custom property stands for in the current theme, as the browser resolves it.
  color(name) {
    if (!this.probe) {
      this.probe = document.createElement("span");
      this.probe.hidden = true;
      document.body.append(this.probe);
    }
    this.probe.style.color = `var(--${name})`;
    return getComputedStyle(this.probe).color;
  },
  // Durations as advisor.units.format_ns writes them.
  ns(value) {
    const units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]];
    for (const [scale, unit] of units) {
      if (Math.abs(value) >= scale * 0.9995) {
        const size = Math.abs(value) / scale;
        return (value / scale).toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2) + " " + unit;
      }
    }
    return Math.round(value) + " ns";
  },
  themeListeners: [],
};

(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  function changed() {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to the ${isDark() ? "light" : "dark"} theme`);
    button.setAttribute("aria-pressed", String(isDark()));
    for (const listener of window.cga.themeListeners) listener();
  }
  // A page opened from disk may have no storage: the choice then lasts as long as the page.
  try { const kept = localStorage.getItem("cgadvisor-theme"); if (kept) root.dataset.theme = kept; } catch { /* none */ }
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("cgadvisor-theme", root.dataset.theme); } catch { /* none */ }
    changed();
  });
  system.addEventListener("change", changed);
  changed();
})();

(() => {
  function selectText(element) {
    const range = document.createRange();
    range.selectNodeContents(element);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  }
  async function copy(text, element) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      selectText(element);  // no clipboard permission on file: fall back to the selection
      return document.execCommand("copy");
    }
  }
  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", async () => {
      const code = button.parentElement.querySelector("code");
      const done = await copy(code.textContent, code);
      button.textContent = done ? "Copied" : "Press Ctrl+C";
      setTimeout(() => { button.textContent = "Copy"; }, 1600);
    });
  }
})();

(() => {
  for (const button of document.querySelectorAll(".open")) {
    button.addEventListener("click", () => {
      const detail = document.getElementById(button.getAttribute("aria-controls"));
      detail.hidden = !detail.hidden;
      button.setAttribute("aria-expanded", String(!detail.hidden));
    });
  }
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = head.querySelector("button");
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : button.dataset.sort === "number";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const value = (body) => {
          const text = body.rows[0].cells[column].dataset.value;
          return button.dataset.sort === "number" ? Number(text) : text;
        };
        const order = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }));
        const bodies = [...table.tBodies].sort((a, b) => order(value(a), value(b)) * (down ? -1 : 1));
        table.append(...bodies);
      });
    });
  }
  // A link to a region (or its own details) opens it.
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target && target.classList.contains("detail")) target.previousElementSibling.querySelector(".open").click();
})();
