/* The page: sliders, moves, and what they change. */

import { followDependences } from "./dependences.js";
import { showNearest } from "./nearest.js";
import { drawScale, drawSection, ends, limits, transform } from "./picture.js";
import { ask } from "./server.js";
import { offerSolving } from "./solving.js";
import { drawSurface, turnBy, turnByKey } from "./surface.js";
import { element, fill, named, number, words } from "./tables.js";

const picture = element("picture");
let model = null; // GET /model
let section = null; // the last answer to a move
let shown = null; // the design of the section, which the sliders may have left
let surface = null; // the boundary of the design, where it is looked at
let chosen = null; // the place that was clicked, and what made it
let solved = null; // the solver's quantities of the design, where it is solved
let design = {};
let position = null; // of the plane in m, null in the middle
let choices = 0;
let asking = false;
let waiting = false;

function addSliders() {
  for (const each of model.parameters) {
    const box = document.createElement("div");
    box.className = "slider";
    box.title = each.description;
    const label = document.createElement("label");
    label.htmlFor = `p-${each.name}`;
    const shown = document.createElement("output");
    label.append(words(each.name), shown);
    const slider = document.createElement("input");
    Object.assign(slider, { type: "range", id: `p-${each.name}`, min: each.low, max: each.high,
      step: (each.high - each.low) / 100 });
    // A slider has steps, a solved design may lie between them: the design has the value.
    slider.set = (value) => {
      design[each.name] = value;
      shown.value = `${number(value)} ${each.unit}`;
    };
    slider.addEventListener("input", () => { slider.set(Number(slider.value)); move(); });
    box.append(label, slider);
    element("sliders").append(box);
  }
}

function setSliders(parameters) {
  for (const each of model.parameters) {
    const slider = element(`p-${each.name}`);
    slider.value = parameters[each.name];
    slider.set(parameters[each.name]);
  }
}

function go(parameters) {
  setSliders(parameters);
  move();
}

const middle = () =>
  Object.fromEntries(model.parameters.map((each) => [each.name, (each.low + each.high) / 2]));

/* One request at a time; of the moves meanwhile only the last is asked for. */
async function move() {
  if (asking) { waiting = true; return; }
  asking = true;
  picture.ariaBusy = "true";
  element("status").textContent = "meshing and predicting";
  const began = performance.now(), asked = { ...design };
  try {
    section = await ask("sections", { parameters: asked, position, anchors: element("anchors").checked });
    showPosition();
    shown = asked;
    chosen = solved = surface = null;
    if (!section.has_surface) element("view").value = "section";
    element("view").options[1].disabled = !section.has_surface;
    if (turnable()) surface = await ask("surfaces", { parameters: asked });
    const meshed = section.known_geometry ? "known mesh" : `meshed in ${number(section.seconds.meshing, 2)} s`;
    element("status").textContent = `${section.num_cells} cells, ${meshed}, predicted in ` +
      `${number(section.seconds.prediction, 2)} s; ${Math.round(performance.now() - began)} ms in all`;
    showAll(asked);
    if (!waiting) await compare(asked);
  } catch (error) {
    element("status").textContent = error.message;
  }
  asking = false;
  picture.ariaBusy = "false"; // a move that waits makes it busy again at once
  if (waiting) { waiting = false; move(); }
}

/* The plane of a 3D section; where it lies is written below the picture. */
function showPosition() {
  const slider = element("position"), ends = section.positions;
  slider.parentElement.hidden = !ends || turnable();
  if (!ends) return;
  Object.assign(slider, { min: ends[0], max: ends[1], step: (ends[1] - ends[0]) / 100 });
  if (position === null) slider.value = section.position;
}

async function compare(asked, newest = false) {
  if (!asked) return; // nothing could be shown yet
  const isCurrent = () => sameDesign(asked, shown); // else the sliders have moved on meanwhile
  const found = await showNearest(model, asked, section, go, newest, isCurrent);
  if (!isCurrent()) return;
  solved = found;
  showQuantities();
}

const sameDesign = (one, other) => model.parameters.every(({ name }) => one[name] === other[name]);

function showAll(asked) {
  if (!element("channel").options.length) {
    section.channels.forEach((name, n) => element("channel").add(new Option(words(name), n)));
  }
  element("shown").options[1].disabled = section.widths === null;
  if (section.widths === null) element("shown").value = "values";
  draw();
  showQuantities();
  showContributions();
  const names = Object.keys(asked);
  element("csv").textContent = `${names.join(",")}\n${names.map((name) => asked[name]).join(",")}`;
  const settings = Object.entries(model.settings).map(([name, value]) => ` --set ${name}=${value}`);
  element("command").textContent = `courant generate ${model.family} --designs design.csv` +
    `${settings.join("")} --split train --store STORE`;
}

const turnable = () => element("view").value === "surface";

function draw() {
  const channel = Number(element("channel").value), kind = element("shown").value;
  const unit = section.units[channel], [low, high] = limits(section, kind, channel);
  picture.classList.toggle("surface", turnable());
  if (turnable() && surface) drawSurface(picture, surface, kind, channel, [low, high]);
  else drawSection(picture, section, kind, channel, chosen, element("anchors").checked);
  element("low").textContent = `${number(low, 3)} ${unit}`;
  element("high").textContent = `${number(high, 3)} ${unit}`;
  element("plane").textContent = turnable()
    ? "The boundary, with the value in the cell behind each face; z is up. Drag it, or turn it by the arrow keys."
    : `${section.across} to the right, ${section.up} up, ${section.plane}`;
}

function showQuantities() {
  const bands = section.bands, around = bands ? bands.quantities : {}, fine = bands ? bands.fine : {};
  const level = bands ? `${Math.round(100 * bands.level)} % band` : "band";
  const unit = (name) => model.quantities.find((each) => each.name === name)?.unit;
  const range = (ends) => `${number(ends[0], 3)} to ${number(ends[1], 3)}`;
  const shown = model.quantities.map((each) => each.name).filter((name) => name in section.quantities);
  const rows = shown.map((name) => [
    named(name, unit(name)),
    number(section.quantities[name]),
    section.sources[name],
    name in around ? `±\u00a0${number(around[name], 2)}` : "none",
    name in fine ? range(fine[name]) : "not studied",
    ...(solved ? [number(solved[name])] : [])]);
  fill(element("quantities"),
    ["", "predicted", "by", level, "on a fine mesh", ...(solved ? ["solver"] : [])], rows);
  element("missing").textContent = Object.entries(section.not_predicted)
    .map(([name, why]) => `${words(name)} is not predicted: ${why}.`).join(" ");
  element("start").textContent = section.start && `${section.start}. No band of the fields holds for that.`;
  const notes = section.warnings.map((each) => `${each}.`);
  if (!bands) notes.push("The run is not calibrated: there is no band of error.");
  else {
    if (bands.no_field) notes.push(`No band holds: ${bands.no_field}.`);
    if (bands.unsolved >= 0.1) {
      notes.push(`${Math.round(100 * bands.unsolved)} % of the designs near this one had no accepted solution.`);
    }
  }
  element("trust").textContent = notes.join(" ");
}

function showContributions() {
  if (!chosen) {
    element("place").textContent = "Choose a place in the section.";
    element("contributions").replaceChildren();
    return;
  }
  const unit = section.units[Number(element("channel").value)];
  element("place").textContent =
    `${section.across} ${number(chosen.x, 3)} m, ${section.up} ${number(chosen.y, 3)} m: ` +
    `${number(chosen.value, 3)} ${unit} is the sum of`;
  fill(element("contributions"), ["part", unit], [
    ["the offset", number(chosen.offset, 3)],
    ...chosen.anchors.map((each) => [`anchor ${each.anchor}`, number(each.value, 3)]),
    ["all other anchors", number(chosen.rest, 3)]]);
}

/* An answer that another section, channel or place has overtaken is dropped. */
async function choose(x, y) {
  const parameters = shown, channel = Number(element("channel").value), choice = ++choices;
  const current = () =>
    shown === parameters && choice === choices && channel === Number(element("channel").value);
  try {
    const found = await ask("contributions", { parameters, x, y, channel, position });
    if (!current()) return;
    chosen = found;
    showContributions();
    draw();
  } catch (error) {
    if (current()) element("place").textContent = error.message;
  }
}

picture.addEventListener("click", (event) => {
  if (!section || turnable()) return;
  const ratio = window.devicePixelRatio || 1, box = picture.getBoundingClientRect();
  choose(...transform(picture, section).from(
    (event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio));
});
/* From the keyboard: the middle of the picture first, then steps of a twentieth. */
picture.addEventListener("keydown", (event) => {
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1], Enter: [0, 0] };
  if (turnable() && surface && turnByKey(event.key)) {
    event.preventDefault();
    draw();
  }
  if (!section || turnable() || !(event.key in steps)) return;
  event.preventDefault();
  const [[left, right], [low, high]] = [ends(section.x), ends(section.y)];
  const from = chosen || { x: (left + right) / 2, y: (low + high) / 2 }, [dx, dy] = steps[event.key];
  choose(from.x + dx * (right - left) / 20, from.y + dy * (high - low) / 20);
});
picture.addEventListener("pointermove", (event) => {
  if (!turnable() || !surface || !event.buttons) return;
  turnBy(event.movementX / 150, event.movementY / 150);
  draw();
});
element("view").addEventListener("change", move);
element("position").addEventListener("input", () => {
  // Rounded steps must not end beyond the outermost cells.
  const [low, high] = section.positions;
  position = Math.min(Math.max(Number(element("position").value), low), high);
  move();
});
element("middle").addEventListener("click", () => go(middle()));
element("channel").addEventListener("change", () => { chosen = null; showContributions(); draw(); });
element("shown").addEventListener("change", draw);
element("anchors").addEventListener("change", move);
window.addEventListener("resize", () => section && draw());

try {
  model = await ask("model");
  element("title").textContent = `${model.run}: ${words(model.family)}`;
  document.title = model.run;
  addSliders();
  setSliders(middle());
  drawScale(element("colours"));
  await move();
  followDependences(model);
  await offerSolving(() => design, () => compare(shown, true));
} catch (error) {
  element("status").textContent = error.message;
}
