/* Draws fields in the plane of a section on canvases, and finds places and values in them. */

const SHADES = 256;

/* The ends and colours of a field: limits, and shades [r, g, b] from the low end to the high one. */
export function scaleOf(limits, colours) {
  const stops = colours.map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  const shades = Array.from({ length: SHADES }, (_, n) => {
    const place = (n / (SHADES - 1)) * (stops.length - 1), first = Math.min(Math.floor(place), stops.length - 2);
    return stops[first].map((part, at) => Math.round(part + (place - first) * (stops[first + 1][at] - part)));
  });
  return { limits, shades };
}

export function colour({ limits: [low, high], shades }, value) {
  const place = Math.min(Math.max((value - low) / (high - low || 1), 0), 1);
  return shades[Math.round(place * (SHADES - 1))];
}

/* Five ticks, the one in the middle of a signed field at zero. */
export const ticks = ({ limits: [low, high] }) =>
  [0, 1, 2, 3, 4].map((n) => (n === 2 && low === -high ? 0 : low + (n * (high - low)) / 4));

export function drawScale(canvas, scale) {
  const pen = canvas.getContext("2d");
  scale.shades.forEach((shade, n) => {
    pen.fillStyle = `rgb(${shade})`;
    pen.fillRect(n, 0, 1, 12);
  });
}

/* Spreading a long array over arguments would overflow the stack; null is no value. */
export function ends(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value === null) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/* A component of values by channel, or the magnitude of several; null where a part is. */
export function fieldOf(channels, columns) {
  if (columns.length === 1) return channels[columns[0]];
  return channels[columns[0]].map((first, n) =>
    first === null ? null : Math.hypot(...columns.map((column) => channels[column][n])));
}

const MARGIN = 12, SLENDER = 0.15;

/* By how much a slender window is stretched upward, as figures of reports are; 1 for others. */
export const stretchOf = ({ window: [left, right, low, high] }) => Math.max(1, (SLENDER * (right - left)) / (high - low));

/* Fits the height of a canvas to a section's window; returns the pen. */
function begin(canvas, section, most) {
  const [left, right, low, high] = section.window;
  const wanted = ((stretchOf(section) * (high - low)) / (right - left)) * (canvas.clientWidth - 2 * MARGIN) + 2 * MARGIN;
  canvas.style.height = `${Math.min(Math.max(wanted, 90), most)}px`;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = canvas.clientWidth * ratio;
  canvas.height = canvas.clientHeight * ratio;
  return [canvas.getContext("2d"), ratio];
}

/* From metres to pixels and back. */
export function transform(canvas, section) {
  const width = canvas.width, height = canvas.height;
  const margin = MARGIN * (window.devicePixelRatio || 1);
  const [left, right, low, high] = section.window, stretch = stretchOf(section);
  const scale = Math.min((width - 2 * margin) / (right - left), (height - 2 * margin) / (high - low) / stretch), up = scale * stretch;
  const shift = [(width - scale * (right - left)) / 2, (height - up * (high - low)) / 2];
  return {
    to: (x, y) => [shift[0] + scale * (x - left), height - shift[1] - up * (y - low)],
    from: (px, py) => [left + (px - shift[0]) / scale, low + (height - shift[1] - py) / up],
  };
}

/* The window that a canvas shows when a place in pixels moves to another one, enlarged by a factor. */
export function moved(canvas, section, [fx, fy], [tx, ty], factor = 1) {
  const { from } = transform(canvas, section), margin = MARGIN * (window.devicePixelRatio || 1);
  const at = (x, y) => from(fx + (x - tx) / factor, fy + (y - ty) / factor);
  const [left, high] = at(margin, margin), [right, low] = at(canvas.width - margin, canvas.height - margin);
  return [left, right, low, high];
}

export function drawSection(canvas, section, values, scale, { chosen, anchors, most }) {
  const [pen, ratio] = begin(canvas, section, most), { to } = transform(canvas, section), [left, right, low, high] = section.window;
  // Beyond a window there are but parts of triangles.
  const [[x, y], [last_x, last_y]] = [to(left, high), to(right, low)], margin = MARGIN * ratio;
  const seen = [x - margin, y - margin, last_x - x + 2 * margin, last_y - y + 2 * margin];
  pen.putImageData(filled(pen, section, values, scale, to), 0, 0, ...seen);
  pen.rect(...seen);
  pen.clip();
  pen.strokeStyle = getComputedStyle(canvas).color;
  pen.lineWidth = 1.5 * ratio;
  pen.beginPath();
  for (const [ax, ay, bx, by] of section.walls) {
    pen.moveTo(...to(ax, ay));
    pen.lineTo(...to(bx, by));
  }
  pen.stroke();
  if (anchors) section.anchors.forEach(([x, y]) => ring(pen, ...to(x, y), 3 * ratio, ratio));
  if (chosen) drawChosen(pen, to, ratio, chosen);
}

/* The pixels of the triangles, each of the value there: linear between the corners. */
function filled(pen, section, values, scale, to) {
  const { width, height } = pen.canvas, image = pen.createImageData(width, height);
  const places = section.x.map((x, n) => to(x, section.y[n]));
  for (const corners of section.triangles) {
    const [a, b, c] = corners.map((n) => values[n]);
    if (a === null || b === null || c === null) continue;
    const [[ax, ay], [bx, by], [cx, cy]] = corners.map((n) => places[n]);
    const area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay);
    // More than half a pixel beyond each side, so that neighbours leave no gap.
    const [over_a, over_b, over_c] = [[bx - cx, by - cy], [ax - cx, ay - cy], [ax - bx, ay - by]]
      .map((side) => -0.6 * Math.hypot(...side) / Math.abs(area));
    const last_x = Math.min(Math.round(Math.max(ax, bx, cx)), width - 1);
    const last_y = Math.min(Math.round(Math.max(ay, by, cy)), height - 1);
    for (let y = Math.max(Math.round(Math.min(ay, by, cy)), 0); area && y <= last_y; y += 1) {
      for (let x = Math.max(Math.round(Math.min(ax, bx, cx)), 0); x <= last_x; x += 1) {
        const second = ((x - ax) * (cy - ay) - (cx - ax) * (y - ay)) / area;
        const third = ((bx - ax) * (y - ay) - (x - ax) * (by - ay)) / area;
        if (second < over_b || third < over_c || 1 - second - third < over_a) continue;
        image.data.set([...colour(scale, (1 - second - third) * a + second * b + third * c), 255], 4 * (y * width + x));
      }
    }
  }
  return image;
}

/* Seen on any ground: a bright line on a broader dark one. */
function ring(pen, x, y, size, ratio, bright = "#fff") {
  for (const [style, width] of [["#222", 3], [bright, 1.5]]) {
    pen.strokeStyle = style;
    pen.lineWidth = width * ratio;
    pen.beginPath();
    pen.arc(x, y, size, 0, 2 * Math.PI);
    pen.stroke();
  }
}

function drawChosen(pen, to, ratio, chosen) {
  const [x, y] = to(chosen.x, chosen.y);
  const largest = Math.max(...chosen.anchors.map((each) => Math.abs(each.value))) || 1;
  for (const each of chosen.anchors) {
    if (each.x === null) continue;
    const [ax, ay] = to(each.x, each.y), share = Math.abs(each.value) / largest;
    const bright = each.value < 0 ? "#6db3f2" : "#ff5a36";
    pen.strokeStyle = bright;
    pen.lineWidth = 2 * ratio;
    pen.globalAlpha = 0.3 + 0.7 * share;
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(ax, ay);
    pen.stroke();
    ring(pen, ax, ay, (4 + 8 * share) * ratio, ratio, bright);
  }
  pen.globalAlpha = 1;
  ring(pen, x, y, 5 * ratio, ratio);
}

/* The value at a place, linear between the corners of its triangle; null outside the fluid. */
export function valueAt(section, values, x, y) {
  for (const [a, b, c] of section.triangles) {
    const [ax, ay, bx, by, cx, cy] = [a, b, c].flatMap((n) => [section.x[n], section.y[n]]);
    const area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay);
    const second = ((x - ax) * (cy - ay) - (cx - ax) * (y - ay)) / area;
    const third = ((bx - ax) * (y - ay) - (x - ax) * (by - ay)) / area;
    if (second < 0 || third < 0 || second + third > 1) continue;
    if (values[a] === null || values[b] === null || values[c] === null) return null;
    return (1 - second - third) * values[a] + second * values[b] + third * values[c];
  }
  return null;
}
