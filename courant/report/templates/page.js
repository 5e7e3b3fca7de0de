"use strict";
// All work on what is in the page: without scripts it shows the first-shown picture, and tables unsorted.

function play(player) {
  const frames = [...player.querySelectorAll(".picture")];
  const controls = player.querySelector(".controls");
  const [back, start, forth] = controls.querySelectorAll("button");
  const slider = controls.querySelector("input"), label = controls.querySelector("output");
  let at = frames.findIndex((each) => !each.hidden), timer = 0;
  const show = (to) => {
    frames[at].hidden = true;
    at = (to + frames.length) % frames.length;
    frames[at].hidden = false;
    slider.value = at;
    label.textContent = frames[at].dataset.label;
  };
  const stop = () => { clearInterval(timer); timer = 0; start.textContent = "▶ play"; };
  const toggle = () => {
    if (timer) return stop();
    start.textContent = "❚❚ pause";
    timer = setInterval(() => show(at + 1), 250);
  };
  const step = (by) => { stop(); show(at + by); };
  start.onclick = toggle;
  back.onclick = () => step(-1);
  forth.onclick = () => step(1);
  slider.oninput = () => { stop(); show(Number(slider.value)); };
  player.onkeydown = (event) => {
    const acts = { ArrowLeft: () => step(-1), ArrowRight: () => step(1), " ": toggle };
    if (event.target.tagName === "BUTTON" && event.key === " ") return;
    if (event.key in acts) { event.preventDefault(); acts[event.key](); }
  };
  controls.hidden = false;
  show(at);
}

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const value = (row, column) => {
    const text = row.cells[column].textContent.trim();
    const number = parseFloat(text.replace(/[,✓✗ ]/g, ""));
    return Number.isNaN(number) ? text : number;
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b
      : typeof a === typeof b ? a.localeCompare(b) : typeof a === "number" ? 1 : -1;
  heads.forEach((head, column) => {
    const sort = () => {
      const up = head.getAttribute("aria-sort") === "descending";
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...body.rows].sort((a, b) => compare(value(a, column), value(b, column)));
      body.append(...(up ? rows : rows.reverse()));
    };
    head.classList.add("sorts");
    head.tabIndex = 0;
    head.onclick = sort;
    head.onkeydown = (event) => { if (event.key === "Enter") sort(); };
  });
}

function enlarge({ target }) {
  const box = document.createElement("dialog");
  box.append(target.cloneNode());
  box.onclick = box.onclose = () => box.remove();
  document.body.append(box);
  box.showModal();
}

addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll(".player").forEach(play);
  document.querySelectorAll(".picture img").forEach((each) => { each.onclick = enlarge; });
  document.querySelectorAll("table.sortable").forEach(sortable);
});
