/* Saves what the page shows as files of the browser. */

import { density, element } from "./tables.js";

function save(name, url) {
  const link = document.createElement("a");
  Object.assign(link, { href: url, download: name });
  link.click();
}

/* A folder of texts by name as one file that unpacks into it: a zip archive, of which the parts are not packed. */
export function saveFolder(name, texts) {
  const bytes = new TextEncoder(), parts = [], list = [];
  let at = 0;
  const numbers = (...of) => { // of two bytes, or of four where they are in brackets
    const view = new DataView(new ArrayBuffer(of.reduce((sum, each) => sum + (Array.isArray(each) ? 4 : 2), 0)));
    of.reduce((place, each) => (Array.isArray(each) ? (view.setUint32(place, each[0], true), place + 4) : (view.setUint16(place, each, true), place + 2)), 0);
    return new Uint8Array(view.buffer);
  };
  for (const [path, text] of Object.entries(texts)) {
    const [content, file] = [text, path].map((each) => bytes.encode(each));
    const facts = [20, 0x800, 0, 0, 0x21, [checksum(content)], [content.length], [content.length], file.length, 0];
    list.push(numbers([0x02014b50], 20, ...facts, 0, 0, 0, [0], [at]), file);
    const head = numbers([0x04034b50], ...facts);
    parts.push(head, file, content);
    at += head.length + file.length + content.length;
  }
  const [count, size] = [list.length / 2, list.reduce((sum, each) => sum + each.length, 0)];
  saveText(name, new Blob([...parts, ...list, numbers([0x06054b50], 0, 0, count, count, [size], [at], 0)]));
}

const CRC = Array.from({ length: 256 }, (_, n) => { // of each byte, for the checksum
  let left = n;
  for (let bit = 0; bit < 8; bit += 1) left = left & 1 ? 0xedb88320 ^ (left >>> 1) : left >>> 1;
  return left;
});

function checksum(content) {
  let left = -1;
  for (const each of content) left = CRC[(left ^ each) & 255] ^ (left >>> 8);
  return ~left >>> 0;
}

export function saveText(name, content) {
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
