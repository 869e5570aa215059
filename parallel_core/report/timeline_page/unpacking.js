"use strict";

// What packing.py writes, as base64: lanes with arrays of times in nanoseconds from the origin. Up to 2 ** 53 they are exact.
const unpack = async (base64) => {
  const packed = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(plain).arrayBuffer());
  let place = 0;
  const number = () => {
    // No shifts: they would cut numbers to 32 bits.
    let [value, unit] = [0, 1];
    for (; bytes[place] > 127; unit *= 128) value += (bytes[place++] - 128) * unit;
    return value + bytes[place++] * unit;
  };
  const column = (count) => Float64Array.from({ length: count }, number);
  const unfolded = (value) => (value % 2 ? -(value + 1) / 2 : value / 2);
  const length = number();
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(place, (place += length))));
  const ends = (starts, durations) => {
    let reached = 0;
    return durations.map((duration, at) => {
      starts[at] = reached + unfolded(starts[at]);
      reached = starts[at] + duration;
      return reached;
    });
  };
  const spans = header.lanes.reduce((sum, [, , count]) => sum + count, 0);
  const columns = Array.from({ length: 4 }, () => column(spans));
  let first = 0;
  const lanes = header.lanes.map(([device, queue, count]) => {
    const [starts, durations, labels, waited] = columns.map((whole) => whole.subarray(first, first + count));
    first += count;
    return {
      device,
      queue,
      starts,
      ends: ends(starts, durations),
      labels: Uint32Array.from(labels),
      waited: waited.map((folded) => (folded ? unfolded(folded - 1) : NaN)),
    };
  });
  const path = lanes.find(({ device, queue }) => device === "" && queue === "critical path") ?? { starts: [], ends: [] };
  return {
    lanes,
    labels: header.labels.map(([name, operator, look]) => ({ name, operator, look })),
    cases: header.cases.map(([name, start, end]) => ({ name, start: start - header.origin, end: end - header.origin })),
    path: { ...path, lanes: column(path.starts.length) },
    end: Math.max(0, ...lanes.map((lane) => lane.ends.at(-1) ?? 0)),
  };
};
