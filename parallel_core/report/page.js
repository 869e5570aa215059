"use strict";

// Tables sort by a click on a heading; cells with data-sort sort by that number.
for (const table of document.querySelectorAll("table.sorts")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const ascending = heading.getAttribute("aria-sort") !== "ascending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.sort ?? row.cells[column].textContent.trim();
      const order = (a, b) => key(a).localeCompare(key(b), undefined, { numeric: false });
      const byNumber = (a, b) => Number(key(a)) - Number(key(b));
      const body = table.tBodies[0];
      const rows = [...body.rows];
      // Rows without a value stay at the end in either order.
      const full = rows.filter((row) => key(row) !== "");
      const numeric = full.every((row) => row.cells[column].dataset.sort !== undefined);
      full.sort(numeric ? byNumber : order);
      if (!ascending) full.reverse();
      body.append(...full, ...rows.filter((row) => key(row) === ""));
    });
  });
}

// All timelines of a chart are zoomed together: by a drag, by buttons, by keys.
const ROUND = [1, 2, 5, 10];
const ticksOf = (from, to) => {
  const least = (to - from) / 6;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = ROUND.map((digit) => digit * power).find((one) => one >= least * 0.999999);
  const first = Math.ceil(from / step - 1e-9);
  const count = Math.floor(to / step + 1e-9) - first + 1;
  return Array.from({ length: count }, (_, number) => Number(((first + number) * step).toPrecision(10)));
};

for (const chart of document.querySelectorAll(".timelines")) {
  const whole = Number(chart.dataset.milliseconds);
  const lanes = [...chart.querySelectorAll(".lane > svg")];
  const views = chart.querySelectorAll(".view");
  const axis = chart.querySelector(".axis");
  let [from, to] = [0, whole];
  const show = (start, end) => {
    const length = Math.min(whole, Math.max(end - start, whole / 2000));
    from = Math.min(Math.max(start, 0), whole - length);
    to = from + length;
    views.forEach((view) => {
      view.setAttribute("x", `${(-100 * from) / length}%`);
      view.setAttribute("width", `${(100 * whole) / length}%`);
    });
    axis.replaceChildren(...ticksOf(from, to).map((at) => {
      const tick = document.createElement("span");
      tick.textContent = `${at} ms`;
      const place = (100 * (at - from)) / length;
      tick.style.left = `${place}%`;
      tick.className = place < 4 ? "first" : place > 96 ? "last" : "";
      return tick;
    }));
    chart.dataset.from = from;
    chart.dataset.to = to;
  };
  const scale = (factor) => {
    const [middle, half] = [(from + to) / 2, ((to - from) * factor) / 2];
    show(middle - half, middle + half);
  };
  const shift = (part) => show(from + part * (to - from), to + part * (to - from));
  const buttons = document.createElement("div");
  buttons.className = "zoom";
  buttons.setAttribute("role", "group");
  buttons.setAttribute("aria-label", "Zoom all timelines");
  for (const [text, name, act] of [
    ["+", "Zoom in", () => scale(0.5)],
    ["−", "Zoom out", () => scale(2)],
    ["◀", "Earlier", () => shift(-0.5)],
    ["▶", "Later", () => shift(0.5)],
    ["whole", "The whole time", () => show(0, whole)],
  ]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.title = name;
    button.setAttribute("aria-label", name);
    button.addEventListener("click", act);
    buttons.append(button);
  }
  const hint = document.createElement("span");
  hint.className = "soft";
  hint.textContent = "or drag across a lane; double-click to return";
  buttons.append(hint);
  chart.prepend(buttons);
  for (const lane of lanes) {
    const selection = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    selection.setAttribute("class", "selection");
    const at = (event) => {
      const { left, width } = lane.getBoundingClientRect();
      return Math.min(1, Math.max(0, (event.clientX - left) / width));
    };
    let start = null;
    lane.addEventListener("pointerdown", (event) => {
      if (event.button === 0) start = at(event);
    });
    lane.addEventListener("pointermove", (event) => {
      if (start === null) return;
      // Captured only once it moves: a mere press shows what a block says.
      if (!lane.hasPointerCapture(event.pointerId)) lane.setPointerCapture(event.pointerId);
      const [left, right] = [start, at(event)].sort((a, b) => a - b);
      selection.setAttribute("x", `${100 * left}%`);
      selection.setAttribute("width", `${100 * (right - left)}%`);
      lane.append(selection);
    });
    const end = (event) => {
      selection.remove();
      if (event.type === "pointerup" && start !== null) {
        const [left, right] = [start, at(event)].sort((a, b) => a - b);
        if (right - left > 0.01) show(from + left * (to - from), from + right * (to - from));
      }
      start = null;
    };
    lane.addEventListener("pointerup", end);
    lane.addEventListener("pointercancel", end);
    lane.addEventListener("dblclick", () => show(0, whole));
  }
}

// What blocks and marks say, at once and on touch too: the browser's own titles come late, and never for fingers.
const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
tip.setAttribute("role", "status");
document.body.append(tip);
const texts = new WeakMap();
const say = (element, x, y) => {
  const title = element?.querySelector?.(":scope > title");
  if (title) {
    texts.set(element, title.textContent);
    title.remove();
  }
  tip.hidden = !texts.has(element);
  if (tip.hidden) return;
  tip.textContent = texts.get(element);
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - width - 4))}px`;
  tip.style.top = `${y + 16 + height < innerHeight ? y + 16 : y - height - 12}px`;
};
const pointed = (event) => say(event.target.closest?.("rect, use"), event.clientX, event.clientY);
addEventListener("pointermove", pointed);
addEventListener("pointerdown", pointed);
// A touch that begins to scroll is no longer pointing.
addEventListener("pointercancel", () => { tip.hidden = true; });

// With the keyboard: a lane is reached by Tab, its blocks by the arrows.
for (const lane of document.querySelectorAll(".lane > svg")) {
  lane.setAttribute("tabindex", "0");
  let current = -1;
  lane.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") tip.hidden = true;
    if (!step) return;
    event.preventDefault();
    const blocks = lane.querySelectorAll(".view > rect");
    current = Math.min(blocks.length - 1, Math.max(0, current + step));
    const { left, right, bottom } = blocks[current].getBoundingClientRect();
    say(blocks[current], (left + right) / 2, bottom);
  });
  lane.addEventListener("blur", () => { tip.hidden = true; });
}

// Folded parts would not be printed by browsers that do not know ::details-content.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  opened.forEach((folded) => { folded.open = true; });
});
addEventListener("afterprint", () => {
  opened.forEach((folded) => { folded.open = false; });
});
