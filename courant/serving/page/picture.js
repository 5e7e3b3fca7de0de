/* Draws fields in the plane of a section on canvases, and finds places and values in them. */

import { density, ticksOf } from "./tables.js";

const SHADES = 256;

/* The ends and colours of a field: limits, and shades [r, g, b] from the low end to the high one. Of a signed
   field, white is zero, and equal distances from it are equally dark, wherever the ends are. */
export function scaleOf(limits, colours, signed) {
  const stops = colours.map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  const [low, high] = limits, most = Math.max(-low, high) || 1;
  const shades = Array.from({ length: SHADES }, (_, n) => {
    const share = n / (SHADES - 1), of_all = signed ? 0.5 + (low + share * (high - low)) / most / 2 : share;
    const place = of_all * (stops.length - 1), first = Math.min(Math.floor(place), stops.length - 2);
    return stops[first].map((part, at) => Math.round(part + (place - first) * (stops[first + 1][at] - part)));
  });
  return { limits, shades };
}

function colour({ limits: [low, high], shades }, value) {
  const place = Math.min(Math.max((value - low) / (high - low || 1), 0), 1);
  return shades[Math.round(place * (SHADES - 1))];
}

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

const SLENDER = 0.15;
export const MARGINS = { left: 46, right: 10, top: 20, bottom: 20 }; // px, for the axes

/* By how much a slender window is stretched upward, as figures of reports are; 1 for others. */
export const stretchOf = ({ window: [left, right, low, high] }) => Math.max(1, (SLENDER * (right - left)) / (high - low));

/* Fits the height of a canvas to a section's window; returns the pen. */
function begin(canvas, section, most) {
  const [left, right, low, high] = section.window, { left: before, right: after, top, bottom } = MARGINS;
  const wanted = ((stretchOf(section) * (high - low)) / (right - left)) * (canvas.clientWidth - before - after) + top + bottom;
  canvas.style.height = `${Math.min(Math.max(wanted, 90), most)}px`;
  const ratio = density();
  canvas.width = canvas.clientWidth * ratio;
  canvas.height = canvas.clientHeight * ratio;
  return [canvas.getContext("2d"), ratio];
}

/* What a canvas has between its axes, in pixels: left, right, top and bottom. */
function inside({ width, height }) {
  const ratio = density(), { left, right, top, bottom } = MARGINS;
  return [left * ratio, width - right * ratio, top * ratio, height - bottom * ratio];
}

/* From metres to pixels and back. */
export function transform(canvas, section) {
  const [first, last, top, bottom] = inside(canvas);
  const [left, right, low, high] = section.window, stretch = stretchOf(section);
  const scale = Math.min((last - first) / (right - left), (bottom - top) / (high - low) / stretch), up = scale * stretch;
  const x0 = (first + last - scale * (right - left)) / 2, y0 = (top + bottom + up * (high - low)) / 2;
  return {
    to: (x, y) => [x0 + scale * (x - left), y0 - up * (y - low)],
    from: (px, py) => [left + (px - x0) / scale, low + (y0 - py) / up],
  };
}

/* The window that a canvas shows when a place in pixels moves to another one, enlarged by a factor. */
export function moved(canvas, section, [fx, fy], [tx, ty], factor = 1) {
  const { from } = transform(canvas, section), [first, last, top, bottom] = inside(canvas);
  const at = (x, y) => from(fx + (x - tx) / factor, fy + (y - ty) / factor);
  const [left, high] = at(first, top), [right, low] = at(last, bottom);
  return [left, right, low, high];
}

export function drawSection(canvas, section, values, scale, { chosen, anchors, arrows, most, within }) {
  const [pen, ratio] = begin(canvas, section, most), { to } = transform(canvas, section), [left, right, low, high] = section.window;
  // Beyond a window there are but parts of triangles.
  const [x, y] = to(left, high).map(Math.floor), [last_x, last_y] = to(right, low).map(Math.ceil);
  pen.putImageData(filled(pen, section, values, scale, to, within), 0, 0, x, y, last_x - x, last_y - y);
  pen.strokeStyle = pen.fillStyle = getComputedStyle(canvas).color;
  drawAxes(pen, section, to, ratio);
  pen.save();
  pen.beginPath();
  pen.rect(x - ratio, y - ratio, last_x - x + 2 * ratio, last_y - y + 2 * ratio);
  pen.clip();
  if (arrows) drawArrows(pen, section, arrows, to, ratio);
  for (const [lines, wide, alpha] of [[section.open, 1, 0.4], [section.walls, 1.5, 1]]) {
    Object.assign(pen, { lineWidth: wide * ratio, globalAlpha: alpha });
    pen.beginPath();
    for (const [ax, ay, bx, by] of lines) {
      pen.moveTo(...to(ax, ay));
      pen.lineTo(...to(bx, by));
    }
    pen.stroke();
  }
  pen.restore();
  if (anchors) section.anchors.forEach(([x, y]) => ring(pen, ...to(x, y), 3 * ratio, ratio));
  if (chosen) drawChosen(pen, to, ratio, chosen);
}

/* Arrows of a vector in the plane at places of a grid, dark on a bright ground; of the fastest 1.4 times as long
   as these are apart. */
function drawArrows(pen, section, { flow: [u, v], fastest }, to, ratio) {
  const apart = 26 * ratio, path = new Path2D(), places = section.x.map((x, n) => to(x, section.y[n])), stretch = stretchOf(section);
  for (const corners of section.triangles) {
    const [[ax, ay], [bx, by], [cx, cy]] = corners.map((n) => places[n]), area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay);
    if (!area || corners.some((n) => u[n] === null)) continue;
    const from = (all) => Math.ceil(Math.min(...all) / apart) * apart;
    for (let y = from([ay, by, cy]); y <= Math.max(ay, by, cy); y += apart) {
      for (let x = from([ax, bx, cx]); x <= Math.max(ax, bx, cx); x += apart) {
        const second = ((x - ax) * (cy - ay) - (cx - ax) * (y - ay)) / area;
        const third = ((bx - ax) * (y - ay) - (x - ax) * (by - ay)) / area;
        if (second < 0 || third < 0 || second + third > 1) continue;
        const [along, up] = [u, v].map((of) => (1 - second - third) * of[corners[0]] + second * of[corners[1]] + third * of[corners[2]]);
        const long = 1.4 * apart * Math.min(Math.hypot(along, up) / fastest, 1.2), turn = Math.atan2(-up * stretch, along);
        if (long < 5 * ratio) continue;
        const at = (share, side) => [x + share * long * Math.cos(turn) - side * long * Math.sin(turn), y + share * long * Math.sin(turn) + side * long * Math.cos(turn)];
        path.moveTo(...at(-0.5, 0));
        path.lineTo(...at(0.5, 0));
        path.moveTo(...at(0.2, 0.15));
        path.lineTo(...at(0.5, 0));
        path.lineTo(...at(0.2, -0.15));
      }
    }
  }
  for (const [style, wide] of [["#fffa", 2.6], ["#222", 1.1]]) {
    Object.assign(pen, { strokeStyle: style, lineWidth: wide * ratio });
    pen.stroke(path);
  }
  pen.strokeStyle = pen.fillStyle;
}

/* A frame around the window, with the coordinates in m. */
function drawAxes(pen, section, to, ratio) {
  const [left, right, low, high] = section.window, [[x0, y0], [x1, y1]] = [to(left, low), to(right, high)];
  const ticks = (least, most, px, apart) => ticksOf(least, most, Math.max(px / ratio / apart, 1.5)).ticks;
  Object.assign(pen, { globalAlpha: 0.35, lineWidth: ratio, font: `${11 * ratio}px system-ui, sans-serif`, textAlign: "right" });
  pen.strokeRect(x0, y1, x1 - x0, y0 - y1);
  pen.globalAlpha = 0.8;
  const name = `${section.across} (m)`, end = x1 - pen.measureText(name).width - 8 * ratio;
  pen.fillText(name, x1, y0 + 15 * ratio);
  pen.fillText(`${section.up} (m)`, x0 - 6 * ratio, y1 - 9 * ratio);
  for (const at of ticks(low, high, y0 - y1, 40)) {
    const [, y] = to(left, at);
    pen.fillRect(x0 - 4 * ratio, y - ratio / 2, 4 * ratio, ratio);
    pen.fillText(at, x0 - 6 * ratio, y + 4 * ratio);
  }
  pen.textAlign = "center";
  for (const at of ticks(left, right, x1 - x0, 75)) {
    const [x] = to(at, low);
    pen.fillRect(x - ratio / 2, y0, ratio, 4 * ratio);
    if (x + pen.measureText(at).width / 2 < end) pen.fillText(at, x, y0 + 15 * ratio);
  }
  pen.globalAlpha = 1;
}

/* The pixels of the triangles, each of the value there: linear between the corners; of those `within` another
   section's triangles alone. */
function filled(pen, section, values, scale, to, within) {
  const { width, height } = pen.canvas, image = pen.createImageData(width, height), inside = within && new Uint8Array(width * height);
  if (within) eachPixel(within, to, width, height, () => true, (place) => { inside[place] = 1; });
  eachPixel(section, to, width, height, (corners) => corners.every((n) => values[n] !== null), (place, corners, shares) => {
    if (inside && !inside[place]) return;
    // Beyond a side the value is that at the side: thin triangles would go far beyond their corners' values.
    const [one, two, three] = shares.map((share) => Math.max(share, 0)), [a, b, c] = corners.map((n) => values[n]);
    image.data.set([...colour(scale, (one * a + two * b + three * c) / (one + two + three)), 255], 4 * place);
  });
  return image;
}

/* Calls `put` with each pixel of the triangles that are wanted, its corners, and their shares in it. */
function eachPixel(section, to, width, height, wanted, put) {
  const places = section.x.map((x, n) => to(x, section.y[n]));
  for (const corners of section.triangles) {
    if (!wanted(corners)) continue;
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
        put(y * width + x, corners, [1 - second - third, second, third]);
      }
    }
  }
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
    if (!each.place) continue;
    const [ax, ay] = to(...each.place), share = Math.abs(each.value) / largest;
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
