/* Saves what the page shows as files of the browser. */

import { density, element } from "./tables.js";

function save(name, url) {
  const link = document.createElement("a");
  Object.assign(link, { href: url, download: name });
  link.click();
}

/* A text, or a file from the server. */
export function saveFile(name, content) {
  const url = URL.createObjectURL(new Blob([content]));
  save(name, url);
  URL.revokeObjectURL(url);
}

/* The lines of a caption, the panes as they stand in the page, with their names, and the scales. */
export function savePicture(name, caption) {
  const ratio = density(), line = 20 * ratio, { color, backgroundColor } = getComputedStyle(document.body);
  const figures = [...document.querySelectorAll("#panes figure:not([hidden])")], boxes = figures.map((each) => each.getBoundingClientRect());
  const [x, y] = ["x", "y"].map((side) => Math.min(...boxes.map((box) => box[side])));
  const panes = { x, y, width: Math.max(...boxes.map((box) => box.right)) - x, height: Math.max(...boxes.map((box) => box.bottom)) - y };
  const scales = [...document.querySelectorAll(".scale:not([hidden])")];
  const whole = document.createElement("canvas"), pen = whole.getContext("2d"), font = `${13 * ratio}px sans-serif`;
  whole.width = Math.max(panes.width, 480) * ratio;
  pen.font = font;
  const lines = caption.flatMap((each) => wrapped(pen, each, whole.width - 8));
  whole.height = (lines.length + 1 + 3 * scales.length) * line + panes.height * ratio;
  Object.assign(pen, { fillStyle: backgroundColor, font }); // a canvas that is resized forgets
  pen.fillRect(0, 0, whole.width, whole.height);
  pen.fillStyle = color;
  lines.forEach((each, n) => pen.fillText(each, 4, (n + 0.8) * line));
  let at = (lines.length + 0.5) * line;
  for (const each of figures) {
    const canvas = each.querySelector("canvas"), box = canvas.getBoundingClientRect();
    const [x, y] = [(box.x - panes.x) * ratio, at + (box.y - panes.y) * ratio];
    const names = wrapped(pen, each.textContent.trim(), canvas.width - 8);
    names.forEach((text, n) => pen.fillText(text, x + 4, y + (n - names.length + 0.7) * line));
    pen.drawImage(canvas, x, y);
  }
  at += panes.height * ratio;
  for (const each of scales) {
    const ticks = [...each.querySelectorAll(":scope > div span")], wide = whole.width - 8 * line;
    pen.textAlign = "left";
    pen.fillText(each.querySelector("span").textContent, 4, at + 0.8 * line);
    const bar = each.querySelector("canvas"), [left, right, top, bottom] = [4 * line, 4 * line + wide, at + line, at + 1.6 * line];
    const [first, last] = bar.pointed.map((is_pointed) => (is_pointed ? 0.6 * line : 0)), middle = (top + bottom) / 2;
    pen.save();
    pen.beginPath(); // a pointed end has values beyond it
    for (const at of [[left, middle], [left + first, top], [right - last, top], [right, middle], [right - last, bottom], [left + first, bottom]]) pen.lineTo(...at);
    if (!first) pen.rect(left, top, wide / 2, bottom - top);
    if (!last) pen.rect(right - wide / 2, top, wide / 2, bottom - top);
    pen.clip();
    pen.drawImage(bar, left, top, wide, bottom - top);
    pen.restore();
    pen.textAlign = "center";
    ticks.forEach((tick) => pen.fillText(tick.textContent, 4 * line + (parseFloat(tick.style.left) / 100) * wide, at + 2.4 * line));
    at += 3 * line;
  }
  save(name, whole.toDataURL());
}

/* A text in lines that are not wider. */
function wrapped(pen, text, width) {
  const lines = [];
  for (const word of text.split(" ")) {
    const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && pen.measureText(longer).width <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}
