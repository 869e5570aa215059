// How times are written and names fitted into room, and where in sorted times a time lies.
const FONT = "system-ui, sans-serif";
const MIN_LETTERS = 5;
const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "μs"], [1, "ns"]];

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
