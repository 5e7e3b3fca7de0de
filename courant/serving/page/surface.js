/* Draws the boundary of a 3D design, the farthest triangles first, turned by drag and keys. */

import { colour, ends } from "./picture.js";
import { density } from "./tables.js";

const STEP = Math.PI / 18;
const LIGHT = 0.55; // of a face that is seen edge-on
let [turn, tilt, nearer, shift] = [-0.6, 0.4, 1, [0, 0]];
let drawn = null; // the surface that was drawn last: its triangles, from the back, and their corners in pixels

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

export function drawSurface(canvas, surface, values, scale, most) {
  const ratio = density(), pen = canvas.getContext("2d");
  canvas.style.height = `${most}px`;
  canvas.width = canvas.clientWidth * ratio;
  canvas.height = canvas.clientHeight * ratio;
  const places = seen(surface.points);
  const [xs, ys] = [0, 1].map((axis) => ends(places.map((place) => place[axis])));
  const size = 0.94 * nearer * Math.min(canvas.width / (xs[1] - xs[0]), canvas.height / (ys[1] - ys[0]));
  const to = ([x, y]) => [canvas.width / 2 + ratio * nearer * shift[0] + size * (x - (xs[0] + xs[1]) / 2),
    canvas.height / 2 + ratio * nearer * shift[1] - size * (y - (ys[0] + ys[1]) / 2)];
  const depth = surface.triangles.map((corners) =>
    corners.reduce((sum, corner) => sum + places[corner][2], 0));
  const order = depth.map((_, n) => n).sort((one, other) => depth[other] - depth[one]);
  for (const n of order) {
    const corners = surface.triangles[n].map((corner) => places[corner]);
    pen.fillStyle = pen.strokeStyle = shaded(colour(scale, values[n]), facing(corners));
    pen.beginPath();
    for (const corner of corners) pen.lineTo(...to(corner));
    pen.closePath();
    pen.fill();
    pen.stroke();
  }
  drawn = { surface, order, places: places.map(to) };
  const corner = [36 * ratio, canvas.height - 36 * ratio];
  Object.assign(pen, { strokeStyle: getComputedStyle(canvas).color, fillStyle: getComputedStyle(canvas).color, font: `${12 * ratio}px sans-serif` });
  seen([[1, 0, 0], [0, 1, 0], [0, 0, 1]]).forEach(([across, up], n) => {
    const at = (length) => [corner[0] + length * ratio * across, corner[1] - length * ratio * up];
    pen.beginPath();
    pen.moveTo(...corner);
    pen.lineTo(...at(22));
    pen.stroke();
    pen.fillText("xyz"[n], at(29)[0] - 3 * ratio, at(29)[1] + 4 * ratio);
  });
}

/* The triangle that is seen at a place in pixels, with its middle in metres; null beside the surface. */
export function faceAt(x, y) {
  if (!drawn) return null;
  const { surface, order, places } = drawn;
  const number = order.findLast((n) => {
    const sides = surface.triangles[n].map((corner, side, all) => {
      const [[ax, ay], [bx, by]] = [places[corner], places[all[(side + 1) % 3]]];
      return (bx - ax) * (y - ay) - (by - ay) * (x - ax);
    });
    return sides.every((side) => side >= 0) || sides.every((side) => side <= 0);
  });
  if (number === undefined) return null;
  const corners = surface.triangles[number].map((corner) => surface.points[corner]);
  return { number, place: [0, 1, 2].map((axis) => corners.reduce((sum, corner) => sum + corner[axis], 0) / 3) };
}

/* 1 where a triangle is seen from the front or behind, 0 edge-on. */
function facing([[ax, ay, az], [bx, by, bz], [cx, cy, cz]]) {
  const [ux, uy, uz, vx, vy, vz] = [bx - ax, by - ay, bz - az, cx - ax, cy - ay, cz - az];
  const normal = [uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx];
  return Math.abs(normal[2]) / (Math.hypot(...normal) || 1);
}

const shaded = (rgb, share) => `rgb(${rgb.map((part) => Math.round(part * (LIGHT + (1 - LIGHT) * share)))})`;
