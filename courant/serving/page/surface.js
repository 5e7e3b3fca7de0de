/* Draws the boundary of a 3D design, turned by drag and keys: each pixel has what is nearest to the eye. */

import { ends } from "./picture.js";
import { density } from "./tables.js";

const STEP = Math.PI / 18;
const LIGHT = 0.86; // of what is seen edge-on: darker would be no colour of the bar
const FINE = 2; // places for each pixel and axis, so that edges are smooth
let [turn, tilt, nearer, shift] = [-0.6, 0.4, 1, [0, 0]];
const drawn = new Map(); // by canvas: the surface, its values, and the triangle at each pixel

const TURNS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

/* Turns by a key; false for another key. */
export function turnByKey(key) {
  if (!(key in TURNS)) return false;
  turnBy(...TURNS[key].map((number) => number * STEP));
  return true;
}

export function turnBy(across, up) {
  turn += across;
  tilt = Math.min(Math.max(tilt + up, -Math.PI / 2), Math.PI / 2);
}

export function enlargeBy(factor) {
  nearer = Math.min(Math.max(nearer * factor, 1), 100);
  if (nearer === 1) shift = [0, 0];
}

/* By pixels of the page. */
export function shiftBy(across, up) {
  shift = [shift[0] + across / nearer, shift[1] + up / nearer];
}

/* z is up; the eye is far away, so that nothing is foreshortened. */
function seen(points) {
  const [c, s, ct, st] = [Math.cos(turn), Math.sin(turn), Math.cos(tilt), Math.sin(tilt)];
  return points.map(([x, y, z]) => {
    const across = c * x - s * y, away = s * x + c * y;
    return [across, ct * z + st * away, ct * away - st * z];
  });
}

export function drawSurface(canvas, surface, values, scale, { most, turning }) {
  const ratio = density(), pen = canvas.getContext("2d");
  canvas.style.height = `${most}px`;
  canvas.width = canvas.clientWidth * ratio;
  canvas.height = canvas.clientHeight * ratio;
  const places = seen(surface.points), { width, height } = canvas, fine = turning ? 1 : FINE;
  const [xs, ys] = [0, 1].map((axis) => ends(places.map((place) => place[axis])));
  const size = 0.94 * nearer * Math.min(width / (xs[1] - xs[0]), height / (ys[1] - ys[0]));
  const pixels = places.map(([x, y, z]) => [fine * (width / 2 + ratio * nearer * shift[0] + size * (x - (xs[0] + xs[1]) / 2)),
    fine * (height / 2 + ratio * nearer * shift[1] - size * (y - (ys[0] + ys[1]) / 2)), z]);
  const facing = facings(surface.triangles, places), [wide, high] = [fine * width, fine * height], { limits: [low, top], shades } = scale;
  const image = pen.createImageData(wide, high), { data } = image, depth = new Float32Array(wide * high).fill(Infinity);
  const at = new Int32Array(wide * high).fill(-1), last = shades.length - 1, steps = last / (top - low || 1);
  surface.triangles.forEach(([a, b, c], number) => {
    const [ax, ay, az] = pixels[a], [bx, by, bz] = pixels[b], [cx, cy, cz] = pixels[c], area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay);
    if (!area) return;
    const [first_x, last_x] = [Math.max(Math.ceil(Math.min(ax, bx, cx)), 0), Math.min(Math.floor(Math.max(ax, bx, cx)), wide - 1)];
    const last_y = Math.min(Math.floor(Math.max(ay, by, cy)), high - 1);
    const [second_x, third_x] = [(cy - ay) / area, (ay - by) / area]; // from one pixel to the next
    for (let y = Math.max(Math.ceil(Math.min(ay, by, cy)), 0); y <= last_y; y += 1) {
      let second = ((first_x - ax) * (cy - ay) - (cx - ax) * (y - ay)) / area, third = ((bx - ax) * (y - ay) - (first_x - ax) * (by - ay)) / area;
      for (let x = first_x, place = y * wide + x; x <= last_x; x += 1, place += 1, second += second_x, third += third_x) {
        const first = 1 - second - third;
        if (first < -1e-6 || second < -1e-6 || third < -1e-6) continue; // neighbours leave no gap
        const z = first * az + second * bz + third * cz;
        if (z >= depth[place]) continue;
        depth[place] = z;
        at[place] = number;
        const shade = shades[Math.round(Math.min(Math.max((first * values[a] + second * values[b] + third * values[c] - low) * steps, 0), last))];
        const light = LIGHT + (1 - LIGHT) * (first * facing[a] + second * facing[b] + third * facing[c]);
        data[4 * place] = light * shade[0];
        data[4 * place + 1] = light * shade[1];
        data[4 * place + 2] = light * shade[2];
        data[4 * place + 3] = 255;
      }
    }
  });
  const drawing = new OffscreenCanvas(wide, high);
  drawing.getContext("2d").putImageData(image, 0, 0);
  pen.drawImage(drawing, 0, 0, width, height);
  drawn.set(canvas, { surface, values, at, wide, pixels, fine });
  const corner = [36 * ratio, height - 36 * ratio];
  Object.assign(pen, { strokeStyle: getComputedStyle(canvas).color, fillStyle: getComputedStyle(canvas).color,
    lineWidth: ratio, font: `${11 * ratio}px system-ui, sans-serif` });
  seen([[1, 0, 0], [0, 1, 0], [0, 0, 1]]).forEach(([x, y], n) => {
    const at = (long) => [corner[0] + long * ratio * x, corner[1] - long * ratio * y];
    pen.beginPath();
    pen.moveTo(...corner);
    pen.lineTo(...at(22));
    pen.stroke();
    pen.fillText("xyz"[n], at(29)[0] - 3 * ratio, at(29)[1] + 4 * ratio);
  });
}

/* The place and the value that are seen at a pixel of a canvas; null beside the surface. */
export function seenAt(canvas, px, py) {
  const of = drawn.get(canvas), [x, y] = of ? [of.fine * px, of.fine * py] : [0, 0];
  const number = of?.at[Math.round(y) * of.wide + Math.round(x)] ?? -1;
  if (number < 0) return null;
  const corners = of.surface.triangles[number], [[ax, ay], [bx, by], [cx, cy]] = corners.map((n) => of.pixels[n]);
  const area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay);
  const second = ((x - ax) * (cy - ay) - (cx - ax) * (y - ay)) / area, third = ((bx - ax) * (y - ay) - (x - ax) * (by - ay)) / area;
  const between = (read) => (1 - second - third) * read(corners[0]) + second * read(corners[1]) + third * read(corners[2]);
  return { place: [0, 1, 2].map((axis) => between((n) => of.surface.points[n][axis])), value: between((n) => of.values[n]) };
}

/* By point, 1 where the triangles around it are seen from the front or behind, 0 edge-on. */
function facings(triangles, places) {
  const sums = places.map(() => [0, 0, 0]);
  for (const corners of triangles) {
    const [[ax, ay, az], [bx, by, bz], [cx, cy, cz]] = corners.map((n) => places[n]);
    const [ux, uy, uz, vx, vy, vz] = [bx - ax, by - ay, bz - az, cx - ax, cy - ay, cz - az];
    [uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx].forEach((part, axis) => { for (const n of corners) sums[n][axis] += part; });
  }
  return sums.map((normal) => Math.abs(normal[2]) / (Math.hypot(...normal) || 1));
}
