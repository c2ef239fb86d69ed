// Small drawings, in SVG, without a library.
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 600;
const HEIGHT = 60;

function shape(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function describe(svg, label, width, height) {
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
}

// The pieces of a line between moments of which nothing is known.
function pieces(times, values, place) {
  const found = [];
  let piece = null;
  values.forEach((value, index) => {
    if (value === null || value === undefined) {
      piece = null;
      return;
    }
    if (!piece) found.push((piece = []));
    piece.push(place(times[index], value));
  });
  return found;
}

// Returns the index of the moment that the pointer is at, or null.
export function chart(svg, { label, times, window, most, lines }) {
  describe(svg, label, WIDTH, HEIGHT);
  const end = times.at(-1) ?? 0;
  const place = (time, value) => [
    WIDTH - ((end - time) / window) * WIDTH,
    HEIGHT - Math.min(value / most, 1) * HEIGHT,
  ];
  const drawn = [0, 0.5, 1].map((part) =>
    shape("line", { class: "grid", x1: 0, x2: WIDTH, y1: part * HEIGHT, y2: part * HEIGHT }),
  );
  for (const { values, name, area } of lines) {
    for (const piece of pieces(times, values, place)) {
      const points = piece.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");
      if (area)
        drawn.push(shape("path", { class: `${name}-area`, d: `M${piece[0][0].toFixed(1)} ${HEIGHT}L${points}L${piece.at(-1)[0].toFixed(1)} ${HEIGHT}Z` }));
      drawn.push(shape("path", { class: name, d: `M${points}` }));
    }
  }
  const x = svg.dataset.pointer === undefined ? null : Number(svg.dataset.pointer) * WIDTH;
  const at = x === null ? null : nearest(times, end - ((WIDTH - x) / WIDTH) * window);
  if (at !== null) drawn.push(shape("line", { class: "mark", x1: x, x2: x, y1: 0, y2: HEIGHT }));
  svg.replaceChildren(...drawn);
  return at;
}

// The moment nearest to `time`; null if the chart does not reach back so far.
function nearest(times, time) {
  if (times.length === 0 || time < times[0] - 1) return null;
  const after = times.findIndex((one) => one >= time);
  if (after <= 0) return after === 0 ? 0 : times.length - 1;
  return time - times[after - 1] < times[after] - time ? after - 1 : after;
}

// Keeps where the pointer is on the chart; `redraw` is called when that changes.
export function pointed(svg, redraw) {
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    svg.dataset.pointer = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    redraw();
  });
  svg.addEventListener("pointerleave", () => {
    delete svg.dataset.pointer;
    redraw();
  });
}

export function meter(part) {
  const svg = shape("svg", { class: "meter", width: "100%", height: 5, "aria-hidden": "true" });
  svg.append(shape("rect", { x: 0, y: 0, height: 5, width: `${Math.min(Math.max(part, 0), 1) * 100}%` }));
  return svg;
}

// One bar on a line of time that ends now.
export function lane(svg, { label, begin, length, name, window }) {
  describe(svg, label, WIDTH, 20);
  const x = Math.max(WIDTH - (begin / window) * WIDTH, 0);
  const width = Math.max(Math.min((length / window) * WIDTH, WIDTH - x), 4);
  svg.replaceChildren(
    shape("rect", { class: "track", x: 0, y: 8, width: WIDTH, height: 4, rx: 2 }),
    shape("rect", { class: name, x: Math.min(x, WIDTH - 4), y: 3, width, height: 14, rx: 3 }),
  );
}
