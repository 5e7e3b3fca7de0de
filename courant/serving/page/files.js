/* Saves what the page shows as files of the browser. */

import { element } from "./tables.js";

function save(name, url) {
  const link = document.createElement("a");
  Object.assign(link, { href: url, download: name });
  link.click();
}

export function saveText(name, content) {
  const url = URL.createObjectURL(new Blob([content]));
  save(name, url);
  URL.revokeObjectURL(url);
}

/* All panes one above the other, with their names and the scales below. */
export function savePicture(name) {
  const ratio = window.devicePixelRatio || 1, line = 20 * ratio, { color, backgroundColor } = getComputedStyle(document.body);
  const panes = [...document.querySelectorAll("#panes figure:not([hidden])")]
    .map((each) => [each.querySelector("canvas"), each.textContent.trim()]);
  const scales = [...document.querySelectorAll(".scale:not([hidden])")];
  const whole = document.createElement("canvas"), pen = whole.getContext("2d");
  whole.width = Math.max(...panes.map(([canvas]) => canvas.width));
  whole.height = panes.reduce((sum, [canvas]) => sum + canvas.height + line, 0) + 3 * line * scales.length;
  pen.fillStyle = backgroundColor;
  pen.fillRect(0, 0, whole.width, whole.height);
  pen.fillStyle = color;
  pen.font = `${13 * ratio}px sans-serif`;
  let at = 0;
  for (const [canvas, title] of panes) {
    pen.fillText(title, 4, at + 0.7 * line);
    pen.drawImage(canvas, 0, at + line);
    at += line + canvas.height;
  }
  for (const each of scales) {
    const ticks = [...each.querySelectorAll("div div span")], wide = whole.width - 8 * line;
    pen.textAlign = "left";
    pen.fillText(each.querySelector("span").textContent, 4, at + 0.8 * line);
    pen.drawImage(each.querySelector("canvas"), 4 * line, at + line, wide, 0.6 * line);
    pen.textAlign = "center";
    ticks.forEach((tick, n) => pen.fillText(tick.textContent, 4 * line + (n * wide) / 4, at + 2.4 * line));
    at += 3 * line;
  }
  save(name, whole.toDataURL());
}
