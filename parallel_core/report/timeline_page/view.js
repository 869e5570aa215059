// The timelines on canvases, all with one scale of time: moved, zoomed, searched and read, by pointer and by keyboard.
(async () => {
  const WIDE = { row: 38, bar: 4, narrow: false };
  const NARROW = { row: 50, bar: 17, narrow: true };
  const [MAX_NAMES_SHARE, NARROWER, REACH, MIN_VIEW] = [0.35, 640, 3, 20];

  const byId = (id) => document.getElementById(id);
  const [root, axis, tip, search, found, caseChoice, pathBox] =
    ["timelines", "axis", "tip", "search", "found", "case", "path"].map(byId);
  let timelines;
  try {
    timelines = await Promise.all([...document.querySelectorAll(".timeline")].map(async (section) => ({
      ...(await unpack(section.querySelector(".packed").textContent)),
      canvas: section.querySelector("canvas"),
      box: section.querySelector(".lanes"),
      names: [...section.querySelectorAll(".names li")].map((item) => ({ item, text: item.textContent })),
      matches: null,
    })));
  } catch (error) {
    found.textContent = `The timeline cannot be drawn (${error.message}): it needs a browser of 2023 or later.`;
    return;
  }

  const whole = Math.max(MIN_VIEW, ...timelines.map(({ end }) => end));
  const view = { from: 0, to: whole, origin: 0, width: 1, layout: WIDE };
  const { pixels, timeAt, barTop, readColours, drawAxis, drawTimeline } = drawing(view);
  let [hovered, scheduled] = [null, false];
  const draw = () => {
    scheduled = false;
    drawAxis(axis);
    for (const timeline of timelines) drawTimeline(timeline, pathBox.checked, hovered);
    Object.assign(root.dataset, { from: view.from, to: view.to });
  };
  const schedule = () => {
    if (!scheduled) requestAnimationFrame(draw);
    scheduled = true;
  };

  const arrange = () => {
    view.layout = root.clientWidth < NARROWER ? NARROW : WIDE;
    const size = view.layout.narrow ? 11 : 12;
    const longest = Math.max(...timelines.flatMap(({ names }) => names.map(({ text }) => textWidth(text, size))));
    const names = view.layout.narrow ? 0 : Math.min(Math.ceil(longest) + 14, Math.floor(root.clientWidth * MAX_NAMES_SHARE));
    root.classList.toggle("narrow", view.layout.narrow);
    root.style.setProperty("--row", `${view.layout.row}px`);
    root.style.setProperty("--names", `${names}px`);
    view.width = Math.max(1, root.clientWidth - names);
    for (const timeline of timelines) {
      for (const { item, text } of timeline.names) item.textContent = fitted(text, size, (names || view.width) - 10);
    }
    schedule();
  };

  const show = (start, end) => {
    const length = Math.min(whole, Math.max(end - start, MIN_VIEW));
    view.from = Math.min(Math.max(start, 0), whole - length);
    view.to = view.from + length;
    schedule();
  };
  const scale = (factor, about = (view.from + view.to) / 2) => show(about - (about - view.from) * factor, about + (view.to - about) * factor);
  const shift = (part) => show(view.from + part * (view.to - view.from), view.to + part * (view.to - view.from));
  const showAll = () => {
    caseChoice.value = "";
    view.origin = 0;
    show(0, whole);
  };

  const say = (place, x, y) => {
    hovered = place;
    tip.hidden = !place;
    schedule();
    if (!place) return;
    const { timeline, lane, span } = place;
    const { device, queue, starts, ends, labels, waited } = timeline.lanes[lane];
    const { name, operator } = timeline.labels[labels[span]];
    const delay = waited[span];
    tip.textContent = [
      name,
      ...(operator ? [operator] : []),
      `${inWords(ends[span] - starts[span])} from ${inWords(starts[span] - view.origin, 9)}`,
      ...(Number.isNaN(delay) ? [] : [`${inWords(delay)} from launch to start`]),
      `${device} ${queue}`.trim(),
    ].join("\n");
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - box.width - 4))}px`;
    tip.style.top = `${y + 18 + box.height < innerHeight ? y + 18 : y - box.height - 12}px`;
  };
  const spanAt = (timeline, x, y) => {
    const lane = Math.floor(y / view.layout.row);
    if (!timeline.lanes[lane]) return null;
    const { starts, ends } = timeline.lanes[lane];
    const time = timeAt(x);
    let [best, nearest] = [-1, REACH];
    for (let at = firstAfter(ends, timeAt(x - REACH)); at < starts.length && pixels(starts[at]) < x + REACH; at += 1) {
      const distance = Math.max(pixels(starts[at]) - x, x - pixels(ends[at]), 0);
      if (distance < nearest) [best, nearest] = [at, distance];
      if (starts[at] > time) break;
    }
    return best < 0 ? null : { timeline, lane, span: best };
  };
  // Say what a span is that need not be under the pointer.
  const sayThere = (place) => {
    const { left, top } = place.timeline.canvas.getBoundingClientRect();
    const { starts, ends } = place.timeline.lanes[place.lane];
    const middle = (pixels(starts[place.span]) + pixels(ends[place.span])) / 2;
    say(place, left + middle, top + barTop(place.lane));
  };
  const bring = (place) => {
    const { starts, ends } = place.timeline.lanes[place.lane];
    const [start, end] = [starts[place.span], ends[place.span]];
    // What lies before the chosen case leaves it.
    if (start < view.origin) [view.origin, caseChoice.value] = [0, ""];
    if (start < view.from || end > view.to || pixels(end) - pixels(start) < 4) {
      const enough = Math.max((end - start) * 200, whole / 5000);
      const half = Math.max((end - start) * 10, Math.min((view.to - view.from) / 2, enough));
      show((start + end) / 2 - half, (start + end) / 2 + half);
    }
    const y = place.timeline.canvas.getBoundingClientRect().top + barTop(place.lane);
    if (y < AXIS || y + BAR > innerHeight) scrollBy(0, y - innerHeight / 2);
    sayThere(place);
  };

  for (const timeline of timelines) {
    const { canvas, box } = timeline;
    const pointers = new Map();
    let moved = false;
    const at = (event) => event.clientX - canvas.getBoundingClientRect().left;
    const hover = (event) => {
      const { left, top } = canvas.getBoundingClientRect();
      say(spanAt(timeline, event.clientX - left, event.clientY - top), event.clientX, event.clientY);
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      pointers.set(event.pointerId, at(event));
      moved = false;
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!pointers.has(event.pointerId)) {
        hover(event);
        return;
      }
      const [before, now] = [pointers.get(event.pointerId), at(event)];
      if (!moved && Math.abs(now - before) < REACH) return;
      if (!canvas.hasPointerCapture(event.pointerId)) canvas.setPointerCapture(event.pointerId);
      canvas.classList.add("moving");
      moved = true;
      say(null);
      const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
      if (other === undefined) shift((before - now) / view.width);
      // Two fingers: what is under the resting one stays there.
      else if (Math.abs(now - other) > 8) scale(Math.abs(before - other) / Math.abs(now - other), timeAt(other));
      pointers.set(event.pointerId, now);
    });
    const release = (event) => {
      pointers.delete(event.pointerId);
      canvas.classList.remove("moving");
      if (!moved && event.type === "pointerup") hover(event);
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("pointerleave", () => { if (!pointers.size) say(null); });
    canvas.addEventListener("dblclick", showAll);
    canvas.addEventListener("wheel", (event) => {
      const lines = event.deltaMode ? 16 : 1;
      const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      // Who is all the way out scrolls the page on.
      if (!sideways && event.deltaY > 0 && view.to - view.from >= whole) return;
      event.preventDefault();
      if (sideways) shift(((event.deltaX || event.deltaY) * lines) / view.width);
      else scale(Math.exp(Math.max(-1, Math.min(1, event.deltaY * lines * 0.002))), timeAt(at(event)));
      hover(event);
    }, { passive: false });

    // With Shift the arrows go from span to span and from lane to lane.
    const step = (lanes, spans) => {
      const here = hovered?.timeline === timeline ? hovered : null;
      const lane = Math.min(timeline.lanes.length - 1, Math.max(0, here ? here.lane + lanes : 0));
      const { starts, ends } = timeline.lanes[lane];
      // At first the first one in view; in another lane the one that had begun last by then.
      const began = here && timeline.lanes[here.lane].starts[here.span];
      const wanted = !here ? firstAfter(ends, view.from) : lanes ? firstAfter(starts, began) - 1 : here.span + spans;
      const span = Math.min(starts.length - 1, Math.max(0, wanted));
      if (starts.length) bring({ timeline, lane, span });
    };
    box.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const act = {
        ArrowLeft: () => (event.shiftKey ? step(0, -1) : shift(-0.2)),
        ArrowRight: () => (event.shiftKey ? step(0, 1) : shift(0.2)),
        ArrowUp: event.shiftKey && (() => step(-1, 0)),
        ArrowDown: event.shiftKey && (() => step(1, 0)),
        "+": () => scale(0.6),
        "=": () => scale(0.6),
        "-": () => scale(1 / 0.6),
        0: showAll,
        Home: showAll,
        Escape: () => say(null),
      }[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
    box.addEventListener("blur", () => say(null));
  }

  // Searching: what does not match is dimmed; Enter goes from match to match, in the order of time.
  let matching = [];
  let current = -1;
  const find = () => {
    const wanted = search.value.trim().toLowerCase();
    const [own, added] = [[], []];
    for (const timeline of timelines) {
      timeline.matches = wanted
        ? Uint8Array.from(timeline.labels, ({ name, operator }) => `${name}\n${operator}`.toLowerCase().includes(wanted))
        : null;
      if (wanted) {
        timeline.lanes.forEach(({ device, labels }, lane) => labels.forEach((label, span) => {
          if (timeline.matches[label]) (device ? own : added).push({ timeline, lane, span });
        }));
      }
    }
    // Cases, annotations and the critical path count only where nothing else has the name.
    [matching, current] = [own.length ? own : added, -1];
    const time = matching.reduce((sum, { timeline, lane, span }) => {
      const { starts, ends } = timeline.lanes[lane];
      return sum + ends[span] - starts[span];
    }, 0);
    const start = ({ timeline, lane, span }) => timeline.lanes[lane].starts[span];
    matching.sort((one, other) => start(one) - start(other));
    found.textContent = wanted ? `${matching.length.toLocaleString("en")} spans, ${inWords(time, 3)} in all` : "";
    schedule();
  };
  const goTo = (direction) => {
    if (!matching.length) return;
    current = current < 0 && direction < 0 ? matching.length - 1 : (current + direction + matching.length) % matching.length;
    bring(matching[current]);
  };
  search.addEventListener("input", find);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") goTo(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") say(null);
  });
  for (const button of document.querySelectorAll(".cut")) {
    button.addEventListener("click", () => {
      search.value = button.textContent;
      find();
      root.scrollIntoView({ block: "nearest" });
      goTo(1);
    });
  }

  const acts = {
    previous: () => goTo(-1),
    next: () => goTo(1),
    in: () => scale(0.5),
    out: () => scale(2),
    earlier: () => shift(-0.5),
    later: () => shift(0.5),
    all: showAll,
  };
  for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", acts[button.dataset.do]);
  const cases = new Map();
  for (const { name, start, end } of timelines.flatMap((timeline) => timeline.cases)) {
    const [first, last] = cases.get(name) ?? [start, end];
    cases.set(name, [Math.min(first, start), Math.max(last, end)]);
  }
  caseChoice.hidden = cases.size < 2;
  for (const name of cases.keys()) caseChoice.add(new Option(name, name));
  const panels = [...document.querySelectorAll("details[data-case]")];
  const choose = () => {
    const [start, end] = cases.get(caseChoice.value) ?? [0, whole];
    view.origin = start;
    show(start, end);
    if (cases.has(caseChoice.value)) for (const panel of panels) panel.open = panel.dataset.case === caseChoice.value;
  };
  caseChoice.addEventListener("change", choose);
  // At first the case that shows most, which stands in the title.
  if (cases.size > 1 && timelines.length === 1 && cases.has(root.dataset.case)) {
    caseChoice.value = root.dataset.case;
    choose();
  }
  pathBox.addEventListener("change", schedule);

  readColours();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); schedule(); });
  new ResizeObserver(arrange).observe(root);
  addEventListener("scroll", schedule, { passive: true });
  arrange();
  draw();
  root.dataset.ready = "true";
})();
