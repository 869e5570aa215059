// Draws timelines and their axis on canvases: only what is in view, and a mark for each pixel at most. `view` is the
// time from which to which is shown, where the axis begins (`origin`), on how many pixels, and the layout of the lanes.
const LOOKS = ["compute", "copy", "exchange", "host", "wait", "mark"];
const [BAR, AXIS] = [30, 22];
// Spans below two pixels share marks, which are paler the less of a pixel was busy.
const [MIN_PIXELS, MIN_OPACITY, DIMMED] = [2, 0.2, 0.18];

const drawing = (view) => {
  let colours = {};
  const pixels = (time) => ((time - view.from) * view.width) / (view.to - view.from);
  const timeAt = (pixel) => view.from + (pixel * (view.to - view.from)) / view.width;
  const barTop = (lane) => lane * view.layout.row + view.layout.bar;

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
    const least = (view.to - view.from) / Math.max(2, view.width / 110);
    const power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((digit) => digit * power).find((one) => one >= least * 0.999999);
    const [from, to] = [view.from - view.origin, view.to - view.origin];
    const first = Math.ceil(from / step - 1e-9);
    return Array.from({ length: Math.floor(to / step + 1e-9) - first + 1 }, (_, number) => view.origin + (first + number) * step);
  };
  const drawAxis = (axis) => {
    const context = sized(axis, AXIS);
    const marks = ticks();
    const [size, unit] = unitOf(Math.max(view.to - view.origin, view.origin - view.from));
    context.font = `11px ${FONT}`;
    context.fillStyle = colours.soft;
    for (const at of marks) {
      const label = `${Number(((at - view.origin) / size).toPrecision(12))} ${unit}`.replace("-", "−");
      const [x, half] = [pixels(at), textWidth(label, 11) / 2];
      context.fillText(label, Math.min(view.width - 2 * half, Math.max(0, x - half)), 15);
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
    for (let at = firstAfter(ends, view.from); at < starts.length && starts[at] < view.to; at += 1) {
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
      const length = Math.min(right, view.width + 2) - begin;
      context.globalAlpha = matches === 0 ? DIMMED : 1;
      context.fillStyle = matches ? colours.found : colours[look];
      // A little less than its length, so that neighbours can be distinguished.
      context.fillRect(begin, top, length > 5 ? length - 0.7 : length, BAR);
      if (length > 28 && matches !== 0) {
        const visible = Math.min(right, view.width) - Math.max(left, 0);
        const text = fitted(name, 11, visible - 8);
        context.font = `11px ${FONT}`;
        context.fillStyle = colours.on[matches ? "found" : look];
        if (text) context.fillText(text, Math.max(left, 0) + (visible - textWidth(text, 11)) / 2, top + BAR / 2 + 4);
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
    // Within a pixel the path is one line over the lanes that it touches; a pale one, because it may leap in every pixel.
    let [column, high, low, pen, reached] = [NaN, 0, 0, null, NaN];
    const flush = () => {
      if (Number.isNaN(column)) return;
      across.moveTo(column + 0.5, high);
      across.lineTo(column + 0.5, low);
      column = NaN;
    };
    for (let at = firstAfter(ends, view.from); at < starts.length && starts[at] < view.to; at += 1) {
      const y = barTop(lanes[at]) + BAR;
      const [left, right] = [Math.max(-4, pixels(starts[at])), Math.min(view.width + 4, pixels(ends[at]))];
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

  const drawTimeline = (timeline, withPath, hovered) => {
    const height = timeline.lanes.length * view.layout.row + 4;
    const { top, bottom } = timeline.box.getBoundingClientRect();
    timeline.canvas.style.height = `${height}px`;
    if (bottom < -200 || top > innerHeight + 200) return;
    const context = sized(timeline.canvas, height);
    timeline.lanes.forEach((_, lane) => {
      context.fillStyle = colours.shade;
      context.fillRect(0, barTop(lane), view.width, BAR);
    });
    context.fillStyle = colours.line;
    for (const at of ticks()) context.fillRect(Math.round(pixels(at)), 0, 1, height);
    timeline.lanes.forEach((lane, number) => drawBars(context, timeline, lane, barTop(number)));
    if (withPath) drawPath(context, timeline);
    if (hovered?.timeline === timeline) drawHovered(context, hovered);
  };

  return { pixels, timeAt, barTop, readColours, drawAxis, drawTimeline };
};
