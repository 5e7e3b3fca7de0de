/* The page: sliders, moves, and what they change. */

import { showCurves } from "./curves.js";
import { saveFile, savePicture } from "./files.js";
import { errorNear, SAME, showNearest } from "./nearest.js";
import { drawScale, drawSection, ends, fieldOf, MARGINS, moved, scaleOf, stretchOf, transform, valueAt } from "./picture.js";
import { ask } from "./server.js";
import { offerSolving } from "./solving.js";
import { drawSurface, enlargeBy, seenAt, shiftBy, turnBy, turnByKey } from "./surface.js";
import { density, element, exact, fill, named, number, sharp, ticksOf, withUnit, words } from "./tables.js";

const FRAME_MS = 250, SOON_MS = 200, ANCHORS = 8, POINT = "Point at a place to read its value.";
const picture = element("picture");
let model = null; // GET /model
let commands = {}; // for a terminal, of GET /solving
let drawn = ""; // what is beside the design that is shown
let verdict = ""; // what the fields of the network are good for, of GET /solving
let frame = null; // the last answers to a move: section, surface, and the section of design B
let frames = new Map(); // those of the design's steps
let shown = null; // the design of the section, which the sliders may have left
let chosen = null; // the place that was clicked, and what made it
let solved = null; // the row of the design in the nearest table, where it is solved
let design = {};
let kept = null; // design B
let position = null; // of the plane in m, null in the middle
let step = null; // of the rollout, null for the last
let view = null; // the window: [left, right, low, high] in m, "all", or null for the one around a body
let later = null; // a timer, after which the server is asked for the window
let [choices, asking, waiting, playing] = [0, false, false, false];
let meshing = 0; // s, that the last mesh took

const value = (id) => element(id).value;
const field = () => model.fields[Number(value("channel"))];
const turnable = () => value("view") === "surface";
const sameDesign = (one, other) => model.parameters.every(({ name }) => one[name] === other[name]);

function addSliders() {
  for (const each of model.parameters) {
    const box = document.createElement("div");
    box.className = "slider";
    box.title = each.description;
    const label = document.createElement("label");
    label.htmlFor = `p-${each.name}`;
    const typed = document.createElement("input");
    Object.assign(typed, { id: `n-${each.name}`, inputMode: "decimal", size: 8, ariaLabel: named(each.name, each.unit) });
    const unit = document.createElement("span");
    unit.append(typed, each.unit === "1" ? "" : ` ${each.unit}`);
    label.append(words(each.name));
    const slider = document.createElement("input");
    Object.assign(slider, { type: "range", id: `p-${each.name}`, min: each.low, max: each.high,
      step: (each.high - each.low) / 100 });
    // A slider has steps, a solved design may lie between them: the design has the value.
    slider.set = (value) => {
      design[each.name] = value;
      typed.value = number(value, 6);
      typed.setCustomValidity("");
    };
    typed.addEventListener("change", () => {
      const at = Number(typed.value.trim().replace(",", ".") || NaN), { low, high } = each;
      if (at >= low && at <= high) return go({ ...design, [each.name]: at });
      typed.setCustomValidity(`${words(each.name)}: write a number from ${number(low)} to ${withUnit(high, each.unit)}`);
      say(`${typed.validationMessage}.`, true);
      typed.reportValidity();
    });
    slider.addEventListener("input", () => { slider.set(Number(slider.value)); move(); });
    const [line, track] = [["div", label, unit], ["div", ...[each.low, each.high].map((end) => number(end, 3))]]
      .map(([tag, ...parts]) => { const made = document.createElement(tag); made.append(...parts); return made; });
    track.firstChild.after(slider);
    box.append(line, track);
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

/* The address is a link to what is shown; what is as it was at first is left out. */
const CHOICES = ["channel", "shown", "beside", "view", "colouring"];

/* The colours of a view until others are chosen: what is white far from the ends of all designs shows no form. */
const usualColours = () => (turnable() ? "own" : "all");
let has_usual = true;
function setColours() { if (has_usual) element("colouring").value = usualColours(); }
const KEYS = [...CHOICES, "limits", "b", "anchors", "arrows", "position", "step", "window"];

function remember() {
  const state = new URLSearchParams(shown);
  for (const id of CHOICES) if (id === "colouring" ? !has_usual : element(id).selectedIndex > 0) state.set(id, value(id));
  if (value("colouring") === "typed" && typedLimits()) state.set("limits", typedLimits().join(" "));
  if (kept) state.set("b", model.parameters.map(({ name }) => kept[name]).join(" "));
  for (const id of ["anchors", "arrows"]) if (element(id).checked) state.set(id, "1");
  if (position !== null) state.set("position", position);
  if (step !== null) state.set("step", step + 1); // as the page counts
  if (view) state.set("window", view === "all" ? view : view.map((at) => number(at, 5)).join(" "));
  history.replaceState(null, "", `?${state}${location.hash}`);
  element("link").href = `?${state}`; // without the token of the solver
}

/* Sets the page as its address has it; returns what is wrong with that, for people to read. */
function restore() {
  const state = new URLSearchParams(location.search), wrong = [], names = model.parameters.map(({ name }) => name);
  const designOf = (entries, otherwise, of = "") => Object.fromEntries(model.parameters.map(({ name, low, high, unit }) => {
    const text = entries.get(name), at = text?.trim() ? Number(text) : NaN;
    if (text !== null && text !== undefined && !(at >= low && at <= high)) {
      wrong.push(`${of}${words(name)} = ${text} is not from ${number(low)} to ${withUnit(high, unit)}`);
    }
    return [name, at >= low && at <= high ? at : otherwise[name]];
  }));
  const asked = designOf(state, middle()), known = [...names, ...KEYS];
  const unknown = [...new Set(state.keys())].filter((name) => !known.includes(name));
  if (unknown.length) wrong.push(`it has no ${unknown.join(", ")}; there are ${known.join(", ")}`);
  // As --design of courant predict, or as this page writes it.
  const parts = (state.get("b") || "").split(/[\s,;]+/).filter(Boolean), is_named = parts.some((part) => part.includes("="));
  const other = new Map(parts.map((part, n) => (is_named ? part.split("=") : [names[n], part])));
  if (parts.length && [...other.keys()].every((name) => names.includes(name)) && (is_named || parts.length === names.length)) {
    const before = wrong.length, found = designOf(other, asked, "b: ");
    if (wrong.length === before) keep(found);
  } else if (state.has("b")) {
    wrong.push(`b = ${state.get("b")} is no design: write b=${model.parameters.map(({ name }) => `${name}=${number(asked[name])}`).join(",")}, `
      + `or a number for each of ${names.join(", ")}`);
  }
  for (const id of CHOICES.filter((each) => state.has(each))) {
    const options = [...element(id).options].filter((each) => !each.disabled);
    element(id).value = state.get(id);
    if (options.some((each) => each.value === state.get(id)) || state.get(id) === "solver") continue;
    element(id).selectedIndex = 0;
    wrong.push(id === "beside" && state.get(id) === "b" ? "beside = b, but no design b" : `${id} = ${state.get(id)}; there are `
      + options.filter((each) => each.value && !each.hidden).map((each) => (id === "channel" ? `${each.value} (${each.text})` : each.value)).join(", ")
      + (id === "beside" && !kept ? ", b" : ""));
  }
  const has = (name, is_right, form) => {
    if (state.has(name) && !is_right) wrong.push(`${name} = ${state.get(name)} is not ${form}`);
    return state.has(name) && is_right;
  };
  for (const id of ["anchors", "arrows"]) element(id).checked = has(id, ["0", "1"].includes(state.get(id)), "0 or 1") && state.get(id) === "1";
  const at = Number(state.get("position")), number_of = Number(state.get("step"));
  if (has("position", state.get("position") && Number.isFinite(at), "a number, in m")) position = at;
  if (has("step", Number.isInteger(number_of) && number_of >= 1 && number_of <= model.num_steps,
    model.step_s ? `one of the steps 1 to ${model.num_steps}` : "of a steady model, which has no steps")) step = number_of - 1;
  const box = (state.get("window") || "").split(/[\s,]+/).map(Number), [left, right, low, high] = box;
  const is_box = box.length === 4 && left < right && low < high;
  if (has("window", is_box || state.get("window") === "all", "left right low high in m, or all")) view = is_box ? box : "all";
  const typed = (state.get("limits") || "").split(/[\s,]+/);
  if (has("limits", typed.length === 2 && Number(typed[0]) < Number(typed[1]), "a low and a high end of the colours")) {
    [element("low").value, element("high").value, element("colouring").value] = [...typed, "typed"];
  }
  has_usual = value("colouring") === "all" && state.get("colouring") !== "all";
  setColours();
  setSliders(asked);
  return wrong;
}

function keep(parameters) {
  kept = parameters;
  element("beside").options[2].disabled = false;
}

/* Below the title. */
function say(text, isWrong = false) {
  element("status").textContent = text;
  element("status").classList.toggle("warning", isWrong);
  pale();
}

/* Picture and numbers, while they are not those of the sliders. */
const pale = () => document.querySelector("main").classList.toggle("stale", Boolean(shown) && !(sameDesign(design, shown) && drawn === withBeside()));
const withBeside = () => value("beside") + (value("beside") === "b" ? JSON.stringify(kept) : "");

/* One request at a time; of the moves meanwhile only the last is asked for. */
async function move() {
  pale();
  element("quantities").classList.remove("early"); // of where the sliders have been
  if (asking) { waiting = true; return; }
  asking = true;
  playing = false;
  element("readout").textContent = POINT;
  picture.ariaBusy = "true";
  const began = performance.now(), asked = { ...design }, other = withBeside(), ended = announce(asked);
  try {
    frames = new Map();
    const found = await load(asked);
    const { section } = frame = found, took = performance.now() - began;
    ended();
    showPosition();
    const is_new = !shown || !sameDesign(asked, shown);
    if (is_new) chosen = solved = null;
    if (is_new) for (const id of ["caution", "nearest"]) element(id).classList.add("later"); // until they have come
    [shown, drawn] = [asked, other];
    if (!section.known_geometry) meshing = section.seconds.meshing;
    // Answers that are kept are quicker than they once were made.
    const made = 1000 * (section.seconds.meshing + section.seconds.prediction) <= took;
    const meshed = section.known_geometry ? "known mesh" : `meshed in ${number(section.seconds.meshing, 2)} s`;
    say(`${section.num_cells.toLocaleString("en")} cells, ` + (made
      ? `${meshed}, predicted in ${number(section.seconds.prediction, 2)} s; ` : "")
      + `${number(took / 1000, 2)} s in all`);
    remember();
    showAll();
    if (is_new) showCurves(model, asked, section.sources);
    if (!waiting) await compare(asked);
  } catch (error) {
    ended();
    say(error.message, true);
  }
  asking = false;
  picture.ariaBusy = "false"; // a move that waits makes it busy again at once
  if (waiting) { waiting = false; move(); }
}

/* Asks for a step of a design, and for what is beside it. */
async function load(parameters) {
  const beside = { "": null, solver: "solver", network: "network", b: kept }[value("beside")], at = { position, step, window: view };
  const anchors = element("anchors").checked, found = {};
  found.section = await ask("sections", { parameters, ...at, anchors, beside });
  if (!found.section.has_surface) element("view").value = "section";
  element("view").parentElement.hidden = !found.section.has_surface;
  setColours();
  if (value("beside") === "b") found.second = await ask("sections", { parameters: kept, position, step, window: found.section.window });
  if (turnable()) {
    found.surface = await ask("surfaces", { parameters, step, beside: found.second ? null : beside });
    if (found.second) found.other_surface = await ask("surfaces", { parameters: kept, step });
  }
  frames.set(found.section.step, found);
  return found;
}

/* Shows that something is under way; a bar runs as long as the last mesh took. */
function announce(asked) {
  const bar = element("progress"), began = performance.now();
  const show = () => {
    if (bar.hidden) showEarly(asked, () => !bar.hidden);
    const seconds = (performance.now() - began) / 1000;
    bar.hidden = false;
    say(`meshing and predicting${meshing ? `, about ${number(meshing, 2)} s for a new mesh` : ""}`);
    if (meshing) bar.value = Math.min(seconds / meshing, 0.97);
    else bar.removeAttribute("value");
  };
  const timer = setInterval(show, SOON_MS);
  return () => { clearInterval(timer); bar.hidden = true; };
}

/* Quantities that need no mesh, before the fields. */
async function showEarly(asked, isCurrent) {
  if (!frame || sameDesign(asked, shown)) return;
  const { section } = frame, { sources, bands } = section, [{ name: over }] = model.parameters;
  const early = Object.keys(section.quantities).filter((name) => sources[name] === "regression");
  const found = await Promise.all(early.map((quantity) => ask("curves", { parameters: asked, quantity, over, here: true }))).catch(() => []);
  if (!isCurrent() || !found.length || !sameDesign(asked, design)) return;
  const empty = (of) => Object.fromEntries(Object.keys(of).map((name) => [name, undefined]));
  const quantities = empty(section.quantities), widths = {};
  early.forEach((name, n) => {
    [quantities[name]] = found[n].values;
    if (found[n].widths[0] !== null && name in bands.quantities) widths[name] = { ...bands.quantities[name], half_width: found[n].widths[0] };
  });
  showQuantities({ ...section, quantities, left_out: {}, of_fields: empty(section.of_fields), bands: { ...bands, too_wide: {}, quantities: widths, fine: empty(bands.fine) } });
}

async function showStep(wanted) {
  const parameters = shown, from = frames;
  step = wanted;
  try {
    const found = frames.get(wanted) || await load(parameters);
    if (from !== frames) return; // a move has come between
    frame = found;
    chosen = null;
    remember();
    showAll();
  } catch (error) {
    playing = false;
    say(error.message, true);
  }
}

async function play() {
  playing = !playing;
  element("play").textContent = playing ? "Stop" : "Play";
  const number = frame.section.times.length;
  for (let next = frame.section.step + 1; playing; next += 1) {
    const until = new Promise((resolve) => { setTimeout(resolve, FRAME_MS); });
    await showStep(next % number);
    await until;
  }
  element("play").textContent = "Play";
}

/* The plane of a 3D section; where it lies is written below the picture. */
function showPosition() {
  const slider = element("position"), { positions, position: at } = frame.section;
  slider.parentElement.hidden = !positions || turnable();
  if (!positions) return;
  Object.assign(slider, { min: positions[0], max: positions[1], step: (positions[1] - positions[0]) / 100 });
  slider.value = at;
  element("plane-at").value = `${number(Math.abs(at) > 1e-6 * (positions[1] - positions[0]) ? at : 0, 3)} m`;
}

async function compare(asked, newest = false) {
  if (!asked) return; // nothing could be shown yet
  const isCurrent = () => sameDesign(asked, shown); // else the sliders have moved on meanwhile
  const beside = (parameters) => { keep(parameters); element("beside").value = "b"; move(); };
  const found = await showNearest(model, asked, frame.section, go, beside, newest, isCurrent);
  if (!isCurrent()) return;
  element("nearest").classList.remove("later");
  solved = found[0]?.distance < SAME ? found[0] : null;
  // Predictions of solved cases, which no move waits for.
  ask("nearest", { parameters: asked, errors: true }).then(({ designs }) => {
    if (isCurrent()) [element("caution").textContent, element("caution").className] = errorNear(designs, model);
  }, () => { if (isCurrent()) element("caution").textContent = ""; });
  element("beside").options[1].disabled = !solved;
  if (frame.section.other && value("beside") === "solver") element("second-name").textContent = ofSolver();
  showQuantities();
}

function showAll() {
  const { section } = frame;
  element("shown").parentElement.hidden = section.widths === null;
  if (section.widths === null) element("shown").value = "values";
  const { times } = section;
  element("time").hidden = times.length < 2;
  Object.assign(element("step"), { max: times.length - 1, value: section.step });
  element("moment").value = times.length ? `t = ${number(times[section.step])} s, step ${section.step + 1} of ${times.length}` : "";
  showVerdict(); // above the picture, which has the room that is left
  draw();
  showQuantities();
  showContributions();
  const names = Object.keys(shown), rows = [names, names.map((name) => shown[name])];
  showCommand("command", commands.solve
    && `printf '${rows.map((row) => `${row.join(",")}\\n`).join("")}' > design.csv\n${commands.solve}`);
}

/* The largest distance from zero but for the outermost half percent, as in reports. */
function reachOf(values) {
  const sizes = Float64Array.from(values.filter((each) => each !== null), Math.abs).sort();
  return sizes[Math.floor(0.995 * (sizes.length - 1))] || sizes.at(-1) || 1;
}

/* The first vector, as a field, and the channels of its components in the plane; null without them. */
function vectorOf({ across, up }) {
  const vector = model.fields.find(({ columns }) => columns.length > 1);
  const columns = [across, up].map((axis) => vector?.columns.find((n) => model.channels[n].endsWith(`.${axis}`)));
  return columns.includes(undefined) ? null : { ...vector, columns };
}

/* The ends of the colours that were typed; null where they are none. */
function typedLimits() {
  const [low, high] = ["low", "high"].map((id) => (value(id).trim() ? Number(value(id).replace(",", ".")) : NaN));
  return low < high ? [low, high] : null;
}

/* What the panes show: for each its canvas, section, values and scale, and the channels of arrows. */
function panes() {
  const { section, second } = frame, { columns, limits, colours, signed } = field();
  const kind = value("shown"), is_band = kind === "widths";
  const turned = turnable() && frame.surface, ours = fieldOf((turned || section)[kind], columns);
  const all = [{ id: "picture", section, surface: turned, values: ours, channels: section.values }];
  const { values: theirs } = second ? (turned ? frame.other_surface : second) : { values: (turned || section).other };
  if (theirs && !is_band) {
    all.push(second ? { id: "second", section: second, surface: turned && frame.other_surface, values: fieldOf(theirs, columns), channels: second.values }
      : { id: "second", section, surface: turned, values: fieldOf(theirs, columns), channels: section.other });
    const other = second ? fieldOf(section.other, columns) : all[1].values;
    if (!turned || !second) { // two surfaces have no places in common
      all.push({ id: "difference", within: second, section: second ? { ...section, walls: [...section.walls, ...second.walls] } : section, surface: turned,
        values: ours.map((one, n) => (other[n] === null ? null : one - other[n])) });
    }
  }
  let [low, high] = limits;
  if (is_band || value("colouring") === "own") {
    const reach = all.slice(0, 2).map((each) => ends(each.values));
    [low, high] = [Math.min(...reach.map(([least]) => least)), Math.max(...reach.map(([, most]) => most))];
    if (is_band) low = 0;
  } else if (value("colouring") === "typed") [low, high] = typedLimits() || limits;
  const scales = [is_band ? scaleOf([low, high], model.fields[0].colours) : scaleOf([low, high], colours, signed)];
  const away = all[2] && reachOf(all[2].values);
  scales.push(scales[0], away && scaleOf([-away, away], model.difference_colours));
  return all.map((each, n) => ({ ...each, scale: scales[n] }));
}

/* Of which split a solved case is: a training case says little of other designs. */
const ofSolver = () => "solver" + (!solved ? ""
  : solved.added ? ", a case since the training" : `, a ${solved.split.replace("train", "training")} case`);

/* The parameters in which B differs. */
const differing = () => model.parameters.filter(({ name }) => kept && kept[name] !== shown[name])
  .map(({ name, unit }) => `${words(name)} ${withUnit(kept[name], unit, 3)}`).join(", ");

const NOTES = 105; // Px of the range in three lines and what is saved; a height that changes would move the picture

/* Places panes of this ratio of height to width in the rows and columns in which they are largest, with what
   is below them where there is room for it. Returns the most that a pane is high, in px. */
function arrange(ratio, number) {
  const area = element("field"), main = area.parentElement, small = window.innerWidth <= 720, { left, right, top, bottom } = MARGINS;
  const above = element("choices").getBoundingClientRect().bottom + window.scrollY;
  area.classList.remove("tall", "four");
  main.classList.remove("under"); // the quantities, which else stand at the right
  const wide = area.clientWidth, whole = main.getBoundingClientRect().right - area.getBoundingClientRect().left, room = window.innerHeight - above - 30 - element("readout").offsetHeight, low = room - element("tools").offsetHeight - NOTES, line = number > 1 ? 26 : 0;
  // Each way: its class, columns, rows, and the width and height that the panes have. The first is the fullest page.
  const ways = number === 2 ? [["", 2, 1, wide, low], ["", 1, 2, wide, low]]
    : number > 1 ? [["", 3, 1, wide, low], ["four", 2, 2, wide, room], ["tall", 1, 3, wide - 256, room], ["", 1, 3, wide, low], ["under", 3, 1, whole, low]]
    : turnable() ? [["", 1, 1, wide, low]] : [["", 1, 1, wide, low], ["tall", 1, 1, wide - 256, room]];
  const found = (small ? [["", 1, 1, wide, 0.45 * window.innerHeight + line]] : ways).map(([kind, columns, rows, width, height]) => {
    const high = Math.max(height / rows, number > 1 ? 150 : 280) - line;
    return { kind, columns, high, size: Math.min(width / columns - left - right, (high - top - bottom) / ratio) };
  });
  const best = found.reduce((one, other) => (other.size > 1.2 * one.size ? other : one));
  if (best.kind) (best.kind === "under" ? main : area).classList.add(best.kind);
  element("panes").style.gridTemplateColumns = `repeat(${best.columns}, minmax(0, 1fr))`;
  return best.high;
}

/* The panes' names in short, to put before a value; of a single one nothing. */
const namesOf = (all) => (all.length < 2 ? [""]
  : all.map(({ id }) => `${element(`${id === "picture" ? "first" : id}-name`).textContent.replace(/[:,;].*/, "")} `));

/* The share of a pane's points whose values are beyond the ends of its colours. */
function beyondOf({ values, scale: { limits: [low, high] } }) {
  const there = values.filter((each) => each !== null);
  return there.filter((each) => each < low || each > high).length / (there.length || 1);
}

function draw(turning = false) {
  const { unit, name } = field(), all = panes(), [first] = all, { section } = frame;
  element("limits").hidden = value("colouring") !== "typed" || value("shown") === "widths";
  if (!value("low") && !value("high")) ["low", "high"].forEach((id, n) => { element(id).value = number(field().limits[n], 3); });
  const [left, right, low, high] = section.window;
  element("around").hidden = !section.has_body || turnable();
  element("panes").classList.toggle("zoomed", Array.isArray(view));
  const compared = all.length > 1;
  element("panes").classList.toggle("compared", compared);
  ["picture", "second", "difference"].forEach((id, n) => {
    element(id).classList.toggle("surface", turnable());
    element(id).parentElement.hidden = n >= all.length;
  });
  element("difference-scale").parentElement.hidden = all.length < 3;
  showScale("colours", "ticks", "scale-name", all.slice(0, 2), named(words(name), unit));
  if (all.length > 2) showScale("difference-colours", "difference-ticks", "difference-scale", all.slice(2), named("difference", unit));
  const vector = turnable() ? null : vectorOf(section), with_arrows = vector && element("arrows").checked;
  element("arrows").parentElement.hidden = !vector;
  const stretch = stretchOf(section), most = arrange((stretch * (high - low)) / (right - left), all.length);
  const by_solver = value("beside") === "solver", lacking = value("beside") && !compared;
  const by_network = value("beside") === "network", first_is = by_network ? section.fields_by : by_solver ? "prediction" : "A, this design";
  const has_parts = !section.fields_by || by_network; // anchors are the network's
  element("parts").hidden = !has_parts;
  element("arrows").nextElementSibling.textContent = `arrows of ${words((vector?.name || "").replaceAll("|", ""))}`;
  for (const each of all) {
    if (turnable()) {
      if (each.surface) drawSurface(element(each.id), each.surface, each.values, each.scale, { most, turning });
      continue;
    }
    const arrows = with_arrows && each.channels && { flow: vector.columns.map((n) => each.channels[n]), fastest: vector.limits[1] };
    drawSection(element(each.id), each.section, each.values, each.scale,
      { most, arrows, within: each.within, ...(each.id === (section.fields_by ? "second" : "picture") && has_parts ? { chosen, anchors: element("anchors").checked } : {}) });
  }
  const of_phase = section.times.length > 1 ? "; in flows that oscillate, mostly a difference of phase" : "";
  element("first-name").textContent = compared ? first_is
    : lacking && by_solver ? `The solver has not solved this design${section.times.length ? " at this time" : ""}: choose one of the nearest, below.`
      : lacking && by_network ? "These are the network's fields." : "";
  element("second-name").textContent = by_solver ? ofSolver() : by_network ? "the network" : `B: ${differing() || "the same design; move a slider"}`;
  element("difference-name").textContent = (by_solver ? "error: prediction - solver" : by_network ? `${section.fields_by} − the network` : "A − B") + of_phase;
  const names = namesOf(all);
  element("range").textContent = `${all.map((each, n) => {
    const [least, greatest] = ends(each.values), beyond = beyondOf(each);
    return `${compared ? names[n] : "In this picture "}from ${number(least, 3)} to ${withUnit(greatest, unit, 3)}`
      + (beyond ? `, ${number(100 * beyond, 2)} % of its points beyond the colours` : "");
  }).join("; ")}.`;
  element("plane").textContent = turnable()
    ? `The boundary, with the values in the cells behind it${compared ? "" : "; z is up. Dragging or arrow keys turn it, the wheel enlarges it, dragging with Shift moves it"}.`
    : `${section.across} to the right, ${section.up} up${stretch > 1 ? `, ${number(stretch, 2)} times as large` : ""}, ${section.plane}.`;
}

/* The bar of some panes' colours, with a pointed end where values of theirs are beyond it. */
function showScale(canvas, below, name, of, text) {
  const [{ scale }] = of, [low, high] = scale.limits, reach = of.map((each) => ends(each.values));
  drawScale(element(canvas), scale);
  const [is_below, is_above] = element(canvas).pointed = [reach.some(([least]) => least < low), reach.some(([, most]) => most > high)];
  element(canvas).style.clipPath = `polygon(${is_below ? "0 50%, .7rem 0" : "0 100%, 0 0"}, `
    + `${is_above ? "calc(100% - .7rem) 0, 100% 50%, calc(100% - .7rem) 100%" : "100% 0, 100% 100%"}${is_below ? ", .7rem 100%" : ""})`;
  element(below).replaceChildren(...ticksOf(low, high, Math.min(Math.max(element(canvas).clientWidth / 45, 3), 7)).ticks.map((each) => {
    const tick = document.createElement("span");
    tick.textContent = number(each);
    tick.style.left = `${(100 * (each - low)) / (high - low || 1)}%`;
    return tick;
  }));
  element(name).textContent = text;
}

/* A section that is not of the frame has what is known before the fields. */
function showQuantities(section = frame.section) {
  const { second } = frame, is_early = section !== frame.section, told = (value, digits) => (value === undefined ? "…" : number(value, digits));
  element("quantities").classList.toggle("early", is_early);
  const bands = section.bands, around = bands.quantities, fine = second ? {} : bands.fine, meshes = Object.keys(fine).length;
  const unit = (name) => model.quantities.find((each) => each.name === name)?.unit, alone = Object.keys(section.of_fields);
  const kinds = Object.values(around).map((of) => `${Math.round(100 * of.level)} % of designs, by ${of.num_cases} `
    + (of.kind === "calibrated" ? "calibration cases" : "cases that the regression was made without"));
  const noted = (text, note, mark) => {
    if (!note) return text;
    const [made, small] = ["span", "small"].map((tag) => document.createElement(tag));
    small.textContent = note;
    small.className = mark || "";
    made.append(text, small);
    return made;
  };
  const outside = (name) => Math.abs(section.of_fields[name] - section.quantities[name]) > around[name]?.half_width;
  /* As many digits as the band's two, and at least three. */
  const banded = (of, name) => {
    const known = solved && of === section && section.sources[name] !== "fields" ? section.left_out[name] : undefined;
    if (section.constant.includes(name)) return "not known";
    const made = known === undefined ? within(of, name) : noted(within(of, name), `${number(known)} without this case`);
    const why = of.bands.too_wide[name];
    return why ? noted(made, `of no use: ${why}`, "warning") : made;
  };
  const within = ({ quantities, bands: { quantities: of } }, name) => {
    const at = quantities[name], half = of[name]?.half_width;
    const size = (of) => Math.floor(Math.log10(Math.abs(of)));
    if (at === undefined) return "…";
    return exact(at, at && half ? Math.min(Math.max(size(at) - size(half) + 2, 3), 12) : 4) + (half === undefined ? "" : `${second ? "\n" : " "}±\u00a0${exact(half, 2)}`);
  };
  /* To the second digit of its band, as of two errors that have nothing to do with each other. */
  const less = (name) => {
    const [one, other] = [section, second].map(({ quantities }) => quantities[name]);
    if (section.constant.includes(name)) return "";
    if (one === undefined) return "…";
    if (one === null || other === null) return "unknown";
    const halves = [section, second].map((of) => of.bands.quantities[name]?.half_width), half = Math.hypot(...halves.map((each) => each ?? 0));
    const unit = half ? 10 ** (Math.floor(Math.log10(half)) - 1) : 0;
    const text = unit && unit < 1 ? (one - other).toFixed(Math.round(-Math.log10(unit))) : number(unit ? Math.round((one - other) / unit) * unit : one - other, 3);
    return halves.includes(undefined) ? text : noted(`${text}\n±\u00a0${exact(half, 2)}`, Math.abs(one - other) < half && "sign not known");
  };
  /* Beside B a line below, since a column has no room. */
  const inFields = (name) => {
    const [one, other] = [section, second].map((of) => of.of_fields[name]), away = one === null || other === null ? null : one - other;
    const is_other = !section.constant.includes(name) && away * (section.quantities[name] - second.quantities[name]) < 0;
    return [noted("", "in these fields, to compare"), told(one), told(other), noted(told(one === undefined ? one : away, 3), is_other && "other sign than above"), ...(solved ? [""] : [])];
  };
  const range = (ends) => (ends ? `${number(ends[0], 3)} to ${number(ends[1], 3)}` : "…");
  const shown = model.quantities.map((each) => each.name).filter((name) => name in section.quantities);
  /* Of which times a quantity of a transient case is. */
  const titled = (name) => {
    const title = document.createElement("span"), times = document.createElement("small");
    const { meaning = "", over } = model.quantities.find((each) => each.name === name) || {};
    title.title = meaning;
    times.textContent = [unit(name) === "1" && meaning.includes("coefficient") ? "coefficient" : "", over].filter(Boolean).join(", ");
    title.append(named(name, unit(name)), ...(times.textContent ? [times] : []));
    return title;
  };
  const rows = shown.flatMap((name) => [[
    titled(name), banded(section, name),
    ...(second ? [banded(second, name), less(name)] : []),
    ...(alone.length && !second ? [name in section.of_fields ? noted(told(section.of_fields[name]), outside(name) && "outside the band", "warning") : "–"] : []),
    ...(meshes ? [name in fine ? range(fine[name]) : "not studied"] : []),
    ...(solved ? [is_early ? "…" : number(solved.quantities[name])] : [])],
  ...(second && alone.includes(name) ? [inFields(name)] : [])]);
  element("quantities").classList.toggle("pair", Boolean(second));
  fill(element("quantities"),
    ["", second ? "A" : noted("predicted", alone.length && "the answer"), ...(second ? ["B", "A\u00a0−\u00a0B"] : []),
      ...(alone.length && !second ? [noted("in these fields", "to compare")] : []), ...(meshes ? ["on a fine mesh"] : []),
      ...(solved ? ["solver"] : [])], rows);
  if (!rows.length) element("quantities").replaceChildren();
  const missing = Object.entries(section.not_predicted), unknown = shown.filter((name) => section.quantities[name] === null);
  element("missing").textContent = [
    ...[...new Set(shown.map((name) => section.sources[name]))].map((by, _, all) =>
      `${all.length > 1 ? shown.filter((name) => section.sources[name] === by).map(words).join(", ") : "Predicted"} by ${by}.`),
    ...[...new Set(kinds)].map((each) => `± holds for ${each}.`),
    ...(kinds.length ? shown.filter((name) => !(name in around)).map((name) => `No band of ${words(name)} holds.`) : []),
    ...(solved && Object.keys(section.left_out).length ? ["The regression was fitted to this case too: the small print has what it gives without it."] : []),
    ...shown.filter((name) => section.constant.includes(name)).map((name) => `${words(name)} is not known: the regression has one value for all designs.`),
    ...(alone.length ? ["Take the predicted value, where there is one: what these fields give has no band."] : []),
    ...Object.entries(section.off_in_cells).map(([name, off]) => `These fields give no ${words(name)}: that of the solver's own cells is ${number(100 * off, 2)} % off what it recorded.`),
    ...unknown.map((name) => `${words(name)} is unknown: the predicted time is too short for it.`),
    ...[...new Set(missing.map(([, why]) => why))].map((why) => {
      const names = missing.filter(([, of]) => of === why).map(([name]) => words(name));
      return `Not predicted: ${names.join(", ")}; ${words(why).replace(/^needs/, "the model has no")}.`;
    })].join(" ");
  showCommand("all-fields", missing.length && commands.all_fields);
  element("start").textContent = section.start && (second ? `A: ${section.start}. B: ${second.start}.` : `${section.start}.`);
  element("beside").querySelector("[value=network]").hidden = !section.fields_by;
  const notes = section.warnings.map((each) => `${each}.`);
  element("no-band").textContent = bands.no_field && `No band ${kinds.length ? "of the fields " : ""}holds: ${bands.no_field}.`;
  if (bands.unsolved >= 0.1) {
    notes.push(`${Math.round(100 * bands.unsolved)} % of the designs near this one had no accepted solution.`);
  }
  element("trust").textContent = notes.join(" ");
  showCommand("calibrate", bands.no_field.startsWith("the run is not calibrated") && commands.calibrate);
}

/* What the fields are good for: a word, the first reason with the worst case, and the others. */
function verdictIn() {
  const [word, ...reasons] = verdict.split("\n"), is_first = (text, n) => n === 0 || text.startsWith("In case ");
  return [word.charAt(0).toUpperCase() + word.slice(1), reasons.filter(is_first).join(" "), reasons.filter((...of) => !is_first(...of)).join(" ")];
}

function showVerdict() {
  const texts = verdictIn();
  element("verdict").hidden = !verdict;
  ["b", "span", "p"].forEach((part, n) => { element("verdict").querySelector(part).textContent = texts[n]; });
}

function showCommand(id, text) {
  element(id).textContent = text || "";
  element(id).parentElement.hidden = !text;
}

function showContributions() {
  const { section } = frame;
  if (!chosen) {
    element("place").textContent = "Each value is a sum of parts, one for each of the model's anchors: places of which it keeps a"
      + ` summary. ${field().columns.length > 1 ? "A magnitude is no sum: choose a component as the field, then click" : "Click"} on the picture.`;
    element("contributions").replaceChildren();
    return;
  }
  const { unit } = field();
  element("place").textContent =
    `${section.across} ${number(chosen.x, 3)} m, ${section.up} ${number(chosen.y, 3)} m: ` +
    `${section.fields_by && "the network's "}${withUnit(chosen.value, unit, 3)} is the sum of`;
  const parts = [["part", named("value", unit)], ["the offset", number(chosen.offset, 3)],
    ...chosen.anchors.map((each) => [`anchor ${each.anchor}`, number(each.value, 3)]),
    ["all other anchors", number(chosen.anchors.reduce((rest, each) => rest - each.value, chosen.value - chosen.offset), 3)]];
  fill(element("contributions"), parts.map(([name]) => name), [parts.map(([, of]) => of)]);
}

/* An answer that another section, channel or place has overtaken is dropped. */
async function choose(x, y) {
  const parameters = shown, { columns } = field(), choice = ++choices, of = frame;
  if (columns.length > 1 || element("parts").hidden) return;
  const current = () => frame === of && choice === choices && columns === field().columns;
  try {
    const found = await ask("contributions", { parameters, x, y, channel: columns[0], position, step });
    if (!current()) return;
    chosen = { ...found, value: found.parts.reduce((sum, each) => sum + each, found.offset),
      anchors: found.parts.map((value, anchor) => ({ anchor, value, place: found.places[anchor] }))
        .sort((one, other) => Math.abs(other.value) - Math.abs(one.value)).slice(0, ANCHORS) };
    showContributions();
    draw();
  } catch (error) {
    if (current()) element("place").textContent = error.message;
  }
}

function placeOf(event, canvas, section) {
  const ratio = density(), box = canvas.getBoundingClientRect();
  return transform(canvas, section).from(
    (event.clientX - box.left - canvas.clientLeft) * ratio, (event.clientY - box.top - canvas.clientTop) * ratio);
}

/* The value below the pointer, in whichever pane it is, and those at the same place in the others. */
function read(event) {
  if (!frame) return;
  const all = panes(), names = namesOf(all), { unit } = field(), { across, up } = frame.section;
  if (turnable()) {
    const seen = frame.surface && seenAt(event.target, ...pixels(event)), place = seen?.place.map((each, n) => `${"xyz"[n]} ${number(each, 3)} m`);
    element("readout").textContent = seen ? `${place.join(", ")}: ${withUnit(seen.value, unit, 3)} in the cells behind` : POINT;
    return;
  }
  const [x, y] = placeOf(event, event.target, all.find((each) => each.id === event.target.id).section);
  const values = all.map((each) => (each.within && valueAt(each.within, each.within.x, x, y) === null ? null : valueAt(each.section, each.values, x, y)));
  element("readout").textContent = values.every((each) => each === null) ? POINT
    : `${across} ${number(x, 3)} m, ${up} ${number(y, 3)} m: `
      + values.map((each, n) => `${names[n]}${each === null ? "no fluid" : withUnit(each, unit, 3)}`).join(", ");
}

/* The window: by the wheel and two fingers it is enlarged, by dragging moved, by a double click all. */
const fingers = new Map(); // places of the pointers that are pressed, in pixels of the canvas
let dragged = false;
const pixels = (event) => {
  const ratio = density(), box = event.currentTarget.getBoundingClientRect();
  return [(event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio];
};

function look(at) {
  view = at;
  for (const each of [frame.section, frame.second]) if (each) each.window = view === "all" ? each.whole : view || each.window;
  draw();
  clearTimeout(later);
  later = setTimeout(move, SOON_MS);
}

function enlarge(canvas, from, to, factor) {
  const { section } = frame, [left, right, low, high] = moved(canvas, section, from, to, factor), [a, b, c, d] = section.whole;
  if (right - left >= b - a && high - low >= d - c) look("all");
  else if (right - left > 1e-4 * (b - a)) {
    const away = (first, last, least, most) => Math.min(Math.max((first + last) / 2, least), most) - (first + last) / 2;
    const [x, y] = [away(left, right, a, b), away(low, high, c, d)];
    look([left + x, right + x, low + y, high + y]);
  }
}

function enlargeSurface(factor) {
  enlargeBy(factor);
  draw();
}

function drag(event) {
  const canvas = event.currentTarget, before = [...fingers.values()], [from] = before, to = pixels(event);
  if (before.length === 1 && (Math.hypot(to[0] - from[0], to[1] - from[1]) < 4 && !dragged
    || event.pointerType === "touch" && !Array.isArray(view))) return; // a click; one finger moves the page
  fingers.set(event.pointerId, to);
  dragged = true;
  const [one, two] = before.length > 1 ? [before, [...fingers.values()]].map(([[ax, ay], [bx, by]]) =>
    [[(ax + bx) / 2, (ay + by) / 2], Math.hypot(ax - bx, ay - by)]) : [[from, 1], [to, 1]];
  enlarge(canvas, one[0], two[0], two[1] / one[1]);
}

for (const id of ["picture", "second", "difference"]) {
  const canvas = element(id), ready = () => frame && !turnable();
  canvas.addEventListener("click", (event) => {
    if (ready() && !dragged) choose(...placeOf(event, canvas, panes().find((each) => each.id === id).section));
  });
  canvas.addEventListener("pointermove", (event) => {
    if (fingers.has(event.pointerId)) drag(event);
    else read(event);
    if (!turnable() || !frame.surface || !event.buttons) return;
    if (event.shiftKey || event.buttons > 1) shiftBy(event.movementX, event.movementY);
    else turnBy(event.movementX / 150, event.movementY / 150);
    draw(true);
  });
  canvas.addEventListener("pointerdown", (event) => {
    if (!ready()) return;
    dragged = fingers.size > 0;
    fingers.set(event.pointerId, pixels(event));
    canvas.setPointerCapture(event.pointerId);
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, (event) => { fingers.delete(event.pointerId); if (turnable()) drawAgain(); });
  }
  canvas.addEventListener("wheel", (event) => {
    if (!frame) return;
    event.preventDefault();
    const factor = Math.exp(-0.0015 * event.deltaY * (event.deltaMode ? 16 : 1));
    if (ready()) enlarge(canvas, pixels(event), pixels(event), factor);
    else enlargeSurface(factor);
  }, { passive: false });
  for (const touch of ["touchstart", "touchmove"]) {
    canvas.addEventListener(touch, (event) => { if (ready() && event.touches.length > 1) event.preventDefault(); }, { passive: false });
  }
  canvas.addEventListener("dblclick", () => {
    if (!ready()) return;
    choices += 1; // its two clicks chose no place
    chosen = null;
    showContributions();
    look(view === "all" ? null : "all");
  });
}
const aboutMiddle = (factor) => (turnable() ? enlargeSurface(factor) : enlarge(picture, ...[0, 1].map(() => [picture.width / 2, picture.height / 2]), factor));
for (const [id, act] of Object.entries({ nearer: () => aboutMiddle(1.5), farther: () => aboutMiddle(1 / 1.5),
  whole: () => (turnable() ? enlargeSurface(0) : look("all")), around: () => look(null) })) element(id).addEventListener("click", () => frame && act());

/* From the keyboard: the middle of the picture first, then steps of a twentieth. */
picture.addEventListener("keydown", (event) => {
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1], Enter: [0, 0] };
  if (turnable() && frame.surface && turnByKey(event.key)) {
    event.preventDefault();
    draw();
  }
  const zoom = { "+": "nearer", "-": "farther", 0: "whole" }[event.key];
  if (zoom) element(zoom).click();
  if (!frame || turnable() || !(event.key in steps)) return;
  event.preventDefault();
  const [left, right, low, high] = frame.section.window;
  const from = chosen || { x: (left + right) / 2, y: (low + high) / 2 }, [dx, dy] = steps[event.key];
  choose(from.x + dx * (right - left) / 20, from.y + dy * (high - low) / 20);
});
element("colouring").addEventListener("change", () => { has_usual = value("colouring") === usualColours(); });
element("view").addEventListener("change", setColours);
for (const id of ["view", "anchors", "beside"]) element(id).addEventListener("change", move);
for (const id of ["colouring", "arrows", "low", "high"]) element(id).addEventListener("change", () => { draw(); remember(); });
for (const id of ["channel", "shown"]) {
  element(id).addEventListener("change", () => {
    for (const end of ["low", "high"]) element(end).value = ""; // of another field
    chosen = null;
    showContributions();
    draw();
    remember();
  });
}
element("position").addEventListener("input", () => {
  // Rounded steps must not end beyond the outermost cells.
  const [low, high] = frame.section.positions;
  chosen = null;
  position = Math.min(Math.max(Number(value("position")), low), high);
  move();
});
element("step").addEventListener("input", () => { playing = false; showStep(Number(value("step"))); });
element("play").addEventListener("click", play);
element("design").addEventListener("submit", (event) => event.preventDefault()); // Enter sets the number alone
element("middle").addEventListener("click", () => go(middle()));
element("keep").addEventListener("click", () => {
  keep({ ...design });
  element("beside").value = "b";
  move();
});
/* Of a file with the design that is shown: its name as a case, and the step. */
const fileName = (kind) => `${model.family}-${frame.section.design}`
  + `${frame.section.times.length ? `-step-${frame.section.step + 1}` : ""}.${kind}`;
element("png").addEventListener("click", () => {
  sharp.times = 2;
  draw();
  const by = frame.section.fields_by;
  savePicture(fileName("png"), [`${model.family}: ${model.run}${by && `, fields by ${by}`}`, verdictIn().slice(0, 2).join(" "), element("caution").classList.contains("later") ? "" : element("caution").textContent, element("start").textContent,
    model.parameters.map(({ name, unit }) => `${words(name)} ${withUnit(shown[name], unit)}`).join(", "),
    [named(words(field().name), field().unit) + (value("shown") === "widths" ? ", half-width of the band" : ""),
      turnable() ? "boundary" : frame.section.plane, element("moment").value].filter(Boolean).join("; "), element("range").textContent].filter(Boolean));
  sharp.times = 1;
  draw();
});
for (const kind of ["vtu", "csv"]) {
  element(kind).addEventListener("click", async () => {
    const { design: id, times, step: at } = frame.section, every = kind === "vtu" && times.length; // all steps in an archive
    const name = every ? `${model.family}-${id}.zip` : fileName(kind), beside = value("beside") === "solver" ? "solver" : null;
    const steps = `${times.length} steps`;
    element(kind).disabled = true;
    say(`the server writes ${every ? steps : name}`);
    try {
      saveFile(name, await ask("exports", { parameters: shown, step: at, kind: every ? "zip" : kind, beside }));
      say(every ? `${steps} are in ${name}: unpack it and open ${model.family}-${id}.pvd` : `saved ${name}`);
    } catch (error) {
      say(error.message, true);
    }
    element(kind).disabled = false;
  });
}
function drawAgain() { if (frame && picture.clientWidth) draw(); } // 0 while the page is left
window.addEventListener("resize", drawAgain);
// What is above the picture leaves it another room.
const above = new ResizeObserver(drawAgain);
for (const each of ["header", "#verdict", "#caution"]) above.observe(document.querySelector(each));

try {
  model = await ask("model");
  ({ commands, verdict } = await ask("solving"));
  element("title").textContent = `${words(model.family)}: ${model.run}`;
  element("answers").hidden = !model.quantities.length;
  document.title = model.run;
  model.fields.forEach((each, n) => element("channel").add(new Option(words(each.name), n)));
  addSliders();
  const state = new URLSearchParams(location.search), wrong = restore();
  await move();
  if (!frame && (position !== null || view)) { // the server alone knows these places
    wrong.push(element("status").textContent);
    position = view = null;
    await move();
  }
  for (const id of ["shown", "view"]) {
    if ([...element(id).options].some((each) => each.value === state.get(id)) && value(id) !== state.get(id)) {
      wrong.push(`${id} = ${state.get(id)}: this design has none`);
    }
  }
  if (wrong.length) say(`The address: ${wrong.join("; ")}.`, true);
  await offerSolving(() => design, () => compare(shown, true));
} catch (error) {
  say(error.message, true);
}
