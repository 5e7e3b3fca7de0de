/* What a quantity depends on: its answers over each parameter, with bands and solved designs. */

import { ask } from "./server.js";
import { element, named, number, ticksOf } from "./tables.js";

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [360, 130, 58, 10, 8, 22];
let drawn = 0; // curves of an earlier design are dropped

/* Draws them for the design that is shown; predictions of many meshes wait for a click. */
export function showCurves(model, design, sources, asked = false) {
  const turn = drawn += 1, choice = element("curve"), place = element("curves"), button = element("draw");
  const known = model.quantities.filter(({ name }) => name in sources);
  if (choice.options.length !== known.length) {
    choice.replaceChildren(...known.map(({ name, unit }) => new Option(named(name, unit), name)));
    choice.onchange = () => choice.again();
    button.onclick = () => choice.again(true);
  }
  choice.again = (wanted) => showCurves(model, design, sources, wanted);
  element("depends").hidden = !choice.options.length;
  const quantity = choice.value;
  button.hidden = asked || !choice.options.length || sources[quantity] === "regression";
  if (!button.hidden) {
    element("curve-note").textContent = `The fields have a part in it: its curves take predictions of ${7 * model.parameters.length} designs.`;
    place.replaceChildren();
    place.ariaBusy = "false";
  } else if (choice.options.length) follow(model, design, quantity, place, () => turn === drawn);
}

async function follow(model, design, quantity, place, isCurrent) {
  const note = element("curve-note"), found = [];
  place.ariaBusy = "true"; // what is below them moves when they come
  try {
    for (const { name } of model.parameters) {
      if (found.length) note.textContent = `${found.length} of ${model.parameters.length} parameters`;
      found.push(await ask("curves", { parameters: design, quantity, over: name }));
      if (!isCurrent()) return;
    }
  } catch (error) {
    if (isCurrent()) [note.textContent, place.ariaBusy] = [error.message, "false"];
    return;
  }
  const ends = found.flatMap(({ values, widths, solved }) => [...solved.map(([, at]) => at),
    ...values.flatMap((at, n) => (at === null ? [] : [at - (widths[n] || 0), at + (widths[n] || 0)]))]);
  if (!ends.length) {
    place.replaceChildren();
    [note.textContent, place.ariaBusy] = ["No value along its curves is known.", "false"];
    return;
  }
  const across = round(Math.min(...ends), Math.max(...ends));
  place.replaceChildren(...model.parameters.map((parameter, n) =>
    chart(found[n], parameter, design[parameter.name], across)));
  note.textContent = `Through the design that is shown, on one scale: the answer by ${found[0].source}, its band, `
    + "and as dots the solver's values, of designs that differ in other parameters by 5 % of their ranges at most.";
  place.ariaBusy = "false";
}

/* Round numbers from below the low end to above the high one. */
function round(low, high) {
  const { step } = ticksOf(low, high, 3), first = Math.floor(low / step), last = Math.max(Math.ceil(high / step), first + 1);
  return ticksOf(first * step, last * step, last - first).ticks;
}

function chart({ at, values, widths, solved }, { name, unit, low, high }, here, across) {
  const [least, most] = [across[0], across.at(-1)];
  const x = (place) => (LEFT + ((place - low) / (high - low || 1)) * (WIDTH - LEFT - RIGHT)).toFixed(1);
  const y = (value) => (HEIGHT - BOTTOM - ((value - least) / (most - least)) * (HEIGHT - TOP - BOTTOM)).toFixed(1);
  const known = at.map((_, n) => n).filter((n) => values[n] !== null), banded = known.filter((n) => widths[n] !== null);
  const line = (numbers, side = 0) => numbers.map((n) => `${x(at[n])},${y(values[n] + side * (widths[n] || 0))}`).join(" ");
  const figure = document.createElement("figure"), caption = document.createElement("figcaption");
  caption.textContent = `over ${named(name, unit)}`;
  const ticks = across.map((value) =>
    `<text x="${LEFT - 5}" y="${Number(y(value)) + 4}" text-anchor="end">${number(value, 3)}</text>`
    + `<line class="grid" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y(value)}" y2="${y(value)}"/>`);
  const share = (here - low) / (high - low || 1), inner = share > 0.2 && share < 0.8; // its number would lie on an end's
  const below = [low, ...(inner ? [here] : []), high].map((place, n, { length }) =>
    `<text x="${x(place)}" y="${HEIGHT - BOTTOM + 16}" text-anchor="${n === 0 ? "start" : n === length - 1 ? "end" : "middle"}">${number(place, 3)}</text>`);
  figure.innerHTML = `<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img">${ticks.join("")}${below.join("")}`
    + `<polygon class="band" points="${line(banded, 1)} ${line([...banded].reverse(), -1)}"/>`
    + `<line class="here" x1="${x(here)}" x2="${x(here)}" y1="${TOP}" y2="${HEIGHT - BOTTOM}"/>`
    + `<polyline class="curve" points="${line(known)}"/>`
    + `${solved.map(([place, value]) => `<circle cx="${x(place)}" cy="${y(value)}" r="3.5"/>`).join("")}</svg>`;
  figure.querySelector("svg").ariaLabel = caption.textContent;
  figure.prepend(caption);
  return figure;
}
