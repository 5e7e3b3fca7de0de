/* The solved designs nearest to the one that is shown. */

import { ask } from "./server.js";
import { element, fill, named, number } from "./tables.js";

/* Shows the table, if the design is still looked at when the answer comes; `go` sets the sliders to a
   design, and `beside` shows it beside the present one. Returns the row of the design where it is itself
   solved, else null. */
export async function showNearest(model, design, section, go, beside, newest, isCurrent) {
  const table = element("nearest"), note = element("nearest-note");
  let answer;
  try {
    answer = await ask("nearest", { parameters: design, newest });
  } catch (error) {
    answer = { designs: [], reason: error.message };
  }
  if (!isCurrent()) return null;
  note.textContent = answer.reason ? `None is shown: ${answer.reason}.`
    : `The solver's, of ${answer.version} of the dataset. They differ by the root mean square over the `
      + "parameters, in % of their ranges.";
  table.replaceChildren();
  if (!answer.designs.length) return null;
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
  const [first] = answer.designs;
  return first.distance < SAME ? first : null;
}

const SAME = 5e-4; // as people round a design
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
