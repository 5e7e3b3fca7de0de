/* The solved designs nearest to the one that is shown. */

import { ask } from "./server.js";
import { element, fill, named, number, words } from "./tables.js";

/* Shows the table, if the design is still looked at when the answer comes; `go` sets the sliders to a
   design, and `beside` shows it beside the present one. Returns its solved designs, the nearest first. */
export async function showNearest(model, design, section, go, beside, newest, isCurrent) {
  const table = element("nearest"), note = element("nearest-note");
  let answer;
  try {
    answer = await ask("nearest", { parameters: design, newest });
  } catch (error) {
    answer = { designs: [], reason: error.message };
  }
  if (!isCurrent()) return [];
  note.textContent = answer.reason ? `None is shown: ${answer.reason}.`
    : `The solver's, of ${answer.version} of the dataset. They differ by the root mean square over the `
      + "parameters, in % of their ranges.";
  table.replaceChildren();
  if (!answer.designs.length) return [];
  const predicted = Object.fromEntries(Object.entries(section.quantities).filter(([name]) => !section.constant.includes(name)));
  const quantities = model.quantities.filter((each) => each.name in answer.designs[0].quantities);
  const cells = (parameters, values) => [
    ...quantities.map((each) => (each.name in values ? number(values[each.name], 3) : "–")),
    ...model.parameters.map((each) => number(parameters[each.name], 3))];
  const rows = answer.designs.map((each) => [
    pair(button(each.case, "Set the sliders to this design", () => go(each.parameters)),
      button("B", "Show its prediction beside this one", () => beside(each.parameters)),
      ofSplit(each)), percent(each.distance), ...cells(each.parameters, each.quantities)]);
  fill(table, ["solved case", "differs by",
    ...[...quantities, ...model.parameters].map((each) => named(each.name, each.unit))],
  [["predicted here", "", ...cells(design, predicted)], ...rows]);
  return answer.designs;
}

const NEAR = 0.15, BAD = 0.2; // of the ranges, and of the mean value, from which on an error is red
export const SAME = 5e-4; // as people round a design

/* How far the fields are off at the worst near design that they were not fitted to, and whether that is a
   "warning", a "note", or "unsure": that no near design tells it. Of one farther away only a large error counts. */
export function errorNear(designs, { parameters, step_s, num_steps }) {
  if (!designs.length) return ["", "note"];
  const known = designs.filter(({ errors }) => errors), worst = ({ errors }) => Math.max(...Object.values(errors));
  const near = known.filter(({ distance }) => distance <= NEAR), of = near.reduce((one, other) => (worst(other) > worst(one) ? other : one), near[0] || known[0]);
  const is_bad = of && worst(of) >= BAD, far = !near.length && farther(designs, parameters);
  const unknown = near.length ? "" : "No solved case that the fields were not fitted to is near "
    + `(${known.length ? `the nearest is ${percent(of.distance)} away` : `they were fitted to the ${designs.length} nearest`}): their error here is not known.`;
  const off = of && (near.length || is_bad) ? `${unknown ? `At that one, ${of.case}, ` : `At the solved ${of.case}, a ${of.split.replace("train", "training")} case, `
    + `${of.distance < SAME ? "this design" : `${percent(of.distance)} away`}, `}these fields are off by `
    + `${Object.entries(of.errors).map(([name, error]) => `${number(100 * error, 2)} % (${words(name)})`).join(", ")} of the mean value${step_s ? `, over its first ${num_steps} steps` : ""}.` : "";
  return [[unknown, off, far].filter(Boolean).join(" "), is_bad ? "warning" : unknown ? "unsure" : "note"];
}

/* Says so, where the nearest design is farther away than those nearest are from one another, in the median. */
function farther(designs, parameters) {
  const apart = (one, other) => Math.sqrt(parameters.reduce((sum, { name, low, high }) =>
    sum + ((one.parameters[name] - other.parameters[name]) / (high - low)) ** 2, 0) / parameters.length);
  const others = designs.map((one) => Math.min(...designs.filter((other) => other !== one).map((other) => apart(one, other)))).sort((one, other) => one - other);
  const usual = others[Math.floor(others.length / 2)], [{ distance }] = designs;
  return distance > usual && `All solved cases are farther from this design (${percent(distance)} or more) than those nearest are from one another (${percent(usual)}).`;
}

const percent = (share) => (share < SAME ? "this design" : `${number(100 * share, 2)} %`);

function ofSplit({ split, added }) {
  const made = document.createElement("small");
  made.textContent = added ? `${split}, since` : split;
  return made;
}

function pair(...buttons) {
  const made = document.createElement("span");
  made.append(...buttons);
  return made;
}

function button(text, title, act) {
  const made = document.createElement("button");
  Object.assign(made, { type: "button", textContent: text, title });
  made.addEventListener("click", act);
  return made;
}
