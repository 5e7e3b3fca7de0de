/* Draws a section of a field on a canvas, and tells places in it. */

// Viridis at 17 places; colours between are mixed.
const VIRIDIS = [
  [68, 1, 84], [72, 21, 103], [72, 38, 119], [69, 55, 129], [64, 71, 136], [57, 86, 140],
  [51, 99, 141], [45, 112, 142], [40, 125, 142], [35, 138, 141], [31, 150, 139], [32, 163, 135],
  [41, 175, 127], [60, 187, 117], [115, 208, 85], [184, 222, 41], [253, 231, 37]];

export function colour(share) {
  const place = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1);
  const low = Math.min(Math.floor(place), VIRIDIS.length - 2);
  const mixed = VIRIDIS[low].map((value, n) =>
    Math.round(value + (place - low) * (VIRIDIS[low + 1][n] - value)));
  return `rgb(${mixed.join(",")})`;
}

export function drawScale(canvas) {
  const pen = canvas.getContext("2d");
  for (let n = 0; n < 256; n += 1) {
    pen.fillStyle = colour(n / 255);
    pen.fillRect(n, 0, 1, 12);
  }
}

/* Spreading a long array over arguments would overflow the stack. */
export function ends(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/* From metres to pixels and back. */
export function transform(canvas, section) {
  const width = canvas.width, height = canvas.height, margin = 12;
  const [[left, right], [low, high]] = [ends(section.x), ends(section.y)];
  const scale = Math.min((width - 2 * margin) / (right - left), (height - 2 * margin) / (high - low));
  const shift = [(width - scale * (right - left)) / 2, (height - scale * (high - low)) / 2];
  return {
    to: (x, y) => [shift[0] + scale * (x - left), height - shift[1] - scale * (y - low)],
    from: (px, py) => [left + (px - shift[0]) / scale, low + (height - shift[1] - py) / scale],
  };
}

/* The ends of the colours: of a field the same for all designs, of a band its own. */
export function limits(section, kind, channel) {
  return kind === "values" ? section.limits[channel] : [0, ends(section[kind][channel])[1]];
}

export function drawSection(canvas, section, kind, channel, chosen, withAnchors) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = canvas.clientWidth * ratio;
  canvas.height = canvas.clientHeight * ratio;
  const pen = canvas.getContext("2d"), { to } = transform(canvas, section);
  const values = section[kind][channel], [low, high] = limits(section, kind, channel);
  const span = high - low || 1;
  for (const [a, b, c] of section.triangles) {
    const share = ((values[a] + values[b] + values[c]) / 3 - low) / span;
    pen.fillStyle = pen.strokeStyle = colour(share);
    pen.beginPath();
    for (const corner of [a, b, c]) pen.lineTo(...to(section.x[corner], section.y[corner]));
    pen.closePath();
    pen.fill();
    pen.stroke();
  }
  if (withAnchors) {
    pen.strokeStyle = "#fff";
    pen.lineWidth = ratio;
    section.anchors.forEach(([x, y]) => ring(pen, ...to(x, y), 3 * ratio));
  }
  if (chosen) drawChosen(pen, to, ratio, chosen);
}

function ring(pen, x, y, size) {
  pen.beginPath();
  pen.arc(x, y, size, 0, 2 * Math.PI);
  pen.stroke();
}

function drawChosen(pen, to, ratio, chosen) {
  const [x, y] = to(chosen.x, chosen.y);
  const largest = Math.max(...chosen.anchors.map((each) => Math.abs(each.value))) || 1;
  pen.lineWidth = 2 * ratio;
  for (const each of chosen.anchors) {
    if (each.x === null) continue;
    const [ax, ay] = to(each.x, each.y), share = Math.abs(each.value) / largest;
    pen.strokeStyle = each.value < 0 ? "#6db3f2" : "#ff5a36";
    pen.globalAlpha = 0.3 + 0.7 * share;
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(ax, ay);
    pen.stroke();
    ring(pen, ax, ay, (4 + 8 * share) * ratio);
  }
  pen.globalAlpha = 1;
  pen.strokeStyle = "#fff";
  ring(pen, x, y, 5 * ratio);
}
