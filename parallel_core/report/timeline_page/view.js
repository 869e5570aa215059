// The timelines on canvases, all with one scale of time: only what is in view is drawn, and a mark for each pixel at most.
(async () => {
  const WIDE = { row: 24, bar: 3, narrow: false };
  const NARROW = { row: 38, bar: 17, narrow: true };
  const [BAR, AXIS, MAX_NAMES_SHARE, NARROWER, REACH] = [18, 22, 0.35, 640, 3];
  // Spans below two pixels share marks, which are paler the less of a pixel was busy.
  const [MIN_PIXELS, MIN_OPACITY, DIMMED, MIN_VIEW, MIN_LETTERS] = [2, 0.2, 0.18, 20, 5];
  const FONT = "system-ui, sans-serif";
  const PATH = "critical path";
  const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "μs"], [1, "ns"]];
  const LOOKS = ["compute", "copy", "exchange", "host", "wait", "mark"];

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
  let [from, to] = [0, whole];
  let [layout, width, colours, hovered, scheduled] = [WIDE, 1, {}, null, false];
  const pixels = (time) => ((time - from) * width) / (to - from);
  const timeAt = (pixel) => from + (pixel * (to - from)) / width;
  const barTop = (lane) => lane * layout.row + layout.bar;

  const unitOf = (time) => UNITS.find(([size]) => size <= Math.abs(time)) ?? UNITS.at(-1);
  const inWords = (time, digits = 5) => {
    const [size, unit] = unitOf(time);
    return `${Number((time / size).toPrecision(digits))} ${unit}`.replace("-", "−");
  };
  const firstAfter = (times, time) => {
    let [low, high] = [0, times.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] > time) high = middle;
      else low = middle + 1;
    }
    return low;
  };

  const measuring = document.createElement("canvas").getContext("2d");
  const widths = new Map();
  const textWidth = (text, size) => {
    const key = `${size} ${text}`;
    if (!widths.has(key)) {
      measuring.font = `${size}px ${FONT}`;
      widths.set(key, measuring.measureText(text).width);
    }
    return widths.get(key);
  };
  // What is too long loses its middle: kernels' and threads' names differ at their ends.
  const fitted = (text, size, room) => {
    const full = textWidth(text, size);
    if (full <= room) return text;
    let kept = Math.floor((text.length * room) / full) - 1;
    const cut = () => `${text.slice(0, Math.ceil(kept / 2))}…${text.slice(text.length - Math.floor(kept / 2))}`;
    while (kept >= MIN_LETTERS && textWidth(cut(), size) > room) kept -= 1;
    return kept >= MIN_LETTERS ? cut() : "";
  };

  const readColours = () => {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(`--${name}`).trim();
    const brightness = (colour) => {
      const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255)
        .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    colours = Object.fromEntries(["paper", "ink", "soft", "line", "shade", "path", "found", ...LOOKS].map((name) => [name, read(name)]));
    colours.on = Object.fromEntries(["found", ...LOOKS].map((name) => [name, brightness(colours[name]) > 0.18 ? "#000000" : "#ffffff"]));
  };

  const sized = (canvas, height) => {
    const ratio = devicePixelRatio || 1;
    const [columns, rows] = [Math.round(canvas.clientWidth * ratio), Math.round(height * ratio)];
    canvas.style.height = `${height}px`;
    if (canvas.width !== columns || canvas.height !== rows) Object.assign(canvas, { width: columns, height: rows });
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, canvas.clientWidth, height);
    return context;
  };

  const ticks = () => {
    const least = (to - from) / Math.max(2, width / 110);
    const power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((digit) => digit * power).find((one) => one >= least * 0.999999);
    const first = Math.ceil(from / step - 1e-9);
    return Array.from({ length: Math.floor(to / step + 1e-9) - first + 1 }, (_, number) => (first + number) * step);
  };
  const drawAxis = () => {
    const context = sized(axis, AXIS);
    const marks = ticks();
    const [size, unit] = unitOf(to);
    context.font = `11px ${FONT}`;
    context.fillStyle = colours.soft;
    for (const at of marks) {
      const label = `${Number((at / size).toPrecision(12))} ${unit}`;
      const [x, half] = [pixels(at), textWidth(label, 11) / 2];
      context.fillText(label, Math.min(width - 2 * half, Math.max(0, x - half)), 15);
    }
  };

  const drawBars = (context, timeline, lane, top) => {
    const { starts, ends, labels } = lane;
    const busy = new Float64Array(LOOKS.length);
    let [column, isFound, dim] = [-1, false, true];
    const flush = () => {
      if (column < 0) return;
      const share = Math.min(1, busy.reduce((sum, one) => sum + one, 0));
      context.globalAlpha = isFound ? 1 : dim ? DIMMED : MIN_OPACITY + (1 - MIN_OPACITY) * share;
      context.fillStyle = isFound ? colours.found : colours[LOOKS[busy.indexOf(Math.max(...busy))]];
      context.fillRect(column, top, isFound ? 2 : 1, BAR);
      busy.fill(0);
      [column, isFound, dim] = [-1, false, true];
    };
    for (let at = firstAfter(ends, from); at < starts.length && starts[at] < to; at += 1) {
      const [left, right, label] = [pixels(starts[at]), pixels(ends[at]), labels[at]];
      const { look, name } = timeline.labels[label];
      const matches = timeline.matches?.[label];
      if (right - left < MIN_PIXELS) {
        const pixel = Math.max(0, Math.floor(left));
        if (pixel !== column) flush();
        column = pixel;
        busy[LOOKS.indexOf(look)] += right - left;
        isFound ||= Boolean(matches);
        dim &&= matches === 0;
        continue;
      }
      flush();
      const begin = Math.max(left, -2);
      const length = Math.min(right, width + 2) - begin;
      context.globalAlpha = matches === 0 ? DIMMED : 1;
      context.fillStyle = matches ? colours.found : colours[look];
      // A little less than its length, so that neighbours can be told apart.
      context.fillRect(begin, top, length > 5 ? length - 0.7 : length, BAR);
      if (length > 28 && matches !== 0) {
        const visible = Math.min(right, width) - Math.max(left, 0);
        const text = fitted(name, 11, visible - 8);
        context.font = `11px ${FONT}`;
        context.fillStyle = colours.on[matches ? "found" : look];
        if (text) context.fillText(text, Math.max(left, 0) + (visible - textWidth(text, 11)) / 2, top + 13);
      }
    }
    flush();
    context.globalAlpha = 1;
  };

  const drawPath = (context, timeline) => {
    const { starts, ends, lanes } = timeline.path;
    const [along, across] = [new Path2D(), new Path2D()];
    const mark = (left, right, y) => {
      along.moveTo(left, y);
      along.lineTo(right, y);
    };
    // Within a pixel the path is one line over the lanes that it touches; a pale one, for it may leap in every pixel.
    let [column, high, low, pen, reached] = [NaN, 0, 0, null, NaN];
    const flush = () => {
      if (Number.isNaN(column)) return;
      across.moveTo(column + 0.5, high);
      across.lineTo(column + 0.5, low);
      column = NaN;
    };
    for (let at = firstAfter(ends, from); at < starts.length && starts[at] < to; at += 1) {
      const y = barTop(lanes[at]) + BAR;
      const [left, right] = [Math.max(-4, pixels(starts[at])), Math.min(width + 4, pixels(ends[at]))];
      const pixel = Math.floor(left);
      // While it is idle there is no line.
      if (starts[at] !== reached) pen = null;
      reached = ends[at];
      if (pixel !== column) {
        flush();
        [column, high, low] = [pixel, pen ?? y, pen ?? y];
      }
      if (y !== pen || right - left >= 1) mark(left, Math.max(right, left + 1), y);
      [high, low, pen] = [Math.min(high, y), Math.max(low, y), y];
      if (right - left >= 1) flush();
    }
    flush();
    context.strokeStyle = colours.path;
    context.lineWidth = 2;
    context.stroke(along);
    context.lineWidth = 1;
    context.globalAlpha = 0.3;
    context.stroke(across);
    context.globalAlpha = 1;
  };

  const drawHovered = (context, { timeline, lane, span }) => {
    const { starts, ends, waited } = timeline.lanes[lane];
    const top = barTop(lane);
    const [left, right] = [pixels(starts[span]), pixels(ends[span])];
    context.strokeStyle = colours.ink;
    context.lineWidth = 2;
    context.strokeRect(left, top, Math.max(1, right - left), BAR);
    if (Number.isNaN(waited[span])) return;
    const launched = starts[span] - waited[span];
    const caller = timeline.lanes.findIndex(({ device, starts: begins, ends: over }) =>
      device === "host" && begins[firstAfter(over, launched)] <= launched);
    context.lineWidth = 1.2;
    context.setLineDash([4, 3]);
    context.beginPath();
    context.moveTo(pixels(launched), caller < 0 ? top + BAR / 2 : barTop(caller) + BAR);
    context.lineTo(left, top + BAR / 2);
    context.stroke();
    context.setLineDash([]);
  };

  const drawTimeline = (timeline) => {
    const height = timeline.lanes.length * layout.row + 4;
    const { top, bottom } = timeline.box.getBoundingClientRect();
    timeline.canvas.style.height = `${height}px`;
    if (bottom < -200 || top > innerHeight + 200) return;
    const context = sized(timeline.canvas, height);
    timeline.lanes.forEach((_, lane) => {
      context.fillStyle = colours.shade;
      context.fillRect(0, barTop(lane), width, BAR);
    });
    context.fillStyle = colours.line;
    for (const at of ticks()) context.fillRect(Math.round(pixels(at)), 0, 1, height);
    timeline.lanes.forEach((lane, number) => drawBars(context, timeline, lane, barTop(number)));
    if (pathBox.checked) drawPath(context, timeline);
    if (hovered?.timeline === timeline) drawHovered(context, hovered);
  };

  const draw = () => {
    scheduled = false;
    drawAxis();
    timelines.forEach(drawTimeline);
    Object.assign(root.dataset, { from, to });
  };
  const schedule = () => {
    if (!scheduled) requestAnimationFrame(draw);
    scheduled = true;
  };

  const arrange = () => {
    layout = root.clientWidth < NARROWER ? NARROW : WIDE;
    const size = layout.narrow ? 11 : 12;
    const longest = Math.max(...timelines.flatMap(({ names }) => names.map(({ text }) => textWidth(text, size))));
    const names = layout.narrow ? 0 : Math.min(Math.ceil(longest) + 14, Math.floor(root.clientWidth * MAX_NAMES_SHARE));
    root.classList.toggle("narrow", layout.narrow);
    root.style.setProperty("--row", `${layout.row}px`);
    root.style.setProperty("--names", `${names}px`);
    width = Math.max(1, root.clientWidth - names);
    for (const timeline of timelines) {
      for (const { item, text } of timeline.names) item.textContent = fitted(text, size, (names || width) - 10);
    }
    schedule();
  };

  const show = (start, end) => {
    const length = Math.min(whole, Math.max(end - start, MIN_VIEW));
    from = Math.min(Math.max(start, 0), whole - length);
    to = from + length;
    schedule();
  };
  const scale = (factor, about = (from + to) / 2) => show(about - (about - from) * factor, about + (to - about) * factor);
  const shift = (part) => show(from + part * (to - from), to + part * (to - from));
  const showAll = () => {
    caseChoice.value = "";
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
      `${inWords(ends[span] - starts[span])} from ${inWords(starts[span], 9)}`,
      ...(Number.isNaN(delay) ? [] : [`${inWords(delay)} from launch to start`]),
      `${device} ${queue}`.trim(),
    ].join("\n");
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - box.width - 4))}px`;
    tip.style.top = `${y + 18 + box.height < innerHeight ? y + 18 : y - box.height - 12}px`;
  };
  const spanAt = (timeline, x, y) => {
    const lane = Math.floor(y / layout.row);
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
    if (start < from || end > to || pixels(end) - pixels(start) < 4) {
      const enough = Math.max((end - start) * 200, whole / 5000);
      const half = Math.max((end - start) * 10, Math.min((to - from) / 2, enough));
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
      if (other === undefined) shift((before - now) / width);
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
      if (!sideways && event.deltaY > 0 && to - from >= whole) return;
      event.preventDefault();
      if (sideways) shift(((event.deltaX || event.deltaY) * lines) / width);
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
      const wanted = !here ? firstAfter(ends, from) : lanes ? firstAfter(starts, began) - 1 : here.span + spans;
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
    const [onPath, elsewhere] = [[], []];
    for (const timeline of timelines) {
      timeline.matches = wanted
        ? Uint8Array.from(timeline.labels, ({ name, operator }) => `${name}\n${operator}`.toLowerCase().includes(wanted))
        : null;
      if (wanted) {
        timeline.lanes.forEach(({ device, queue, labels }, lane) => labels.forEach((label, span) => {
          if (timeline.matches[label]) (device === "" && queue === PATH ? onPath : elsewhere).push({ timeline, lane, span });
        }));
      }
    }
    // What is on the critical path stands on its own lane, too, but for what lies between recorded calls.
    [matching, current] = [elsewhere.length ? elsewhere : onPath, -1];
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
  caseChoice.addEventListener("change", () => show(...(cases.get(caseChoice.value) ?? [0, whole])));
  pathBox.addEventListener("change", schedule);

  readColours();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); schedule(); });
  new ResizeObserver(arrange).observe(root);
  addEventListener("scroll", schedule, { passive: true });
  arrange();
  draw();
  root.dataset.ready = "true";
})();
