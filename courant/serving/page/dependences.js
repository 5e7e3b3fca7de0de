/* What a quantity depends on: bars of its Sobol indices, by parameter. */

import { ask } from "./server.js";
import { element, fill, number, words } from "./tables.js";

const AGAIN_MS = 2000;
let known = null;

/* Asks until the server has computed them; moves of sliders go on meanwhile. */
export async function followDependences(model) {
  const note = element("dependence-note"), choice = element("dependence");
  try {
    known = await ask("dependences");
  } catch (error) {
    note.textContent = error.message;
    return;
  }
  if (!known.ready) {
    note.textContent = "The indices are being computed.";
    setTimeout(() => followDependences(model), AGAIN_MS);
    return;
  }
  note.textContent = known.reason ? `None are shown: ${known.reason}.` : "";
  const names = Object.keys(known.quantities);
  choice.replaceChildren(...names.map((name) => new Option(words(name), name)));
  choice.parentElement.hidden = !names.length;
  choice.addEventListener("change", () => show(model));
  if (names.length) show(model);
}

function show(model) {
  const { predicted, solved } = known.quantities[element("dependence").value];
  const rows = model.parameters.map((each) => [
    words(each.name), bars(predicted, solved, each.name), share(predicted, each.name),
    share(solved, each.name)]);
  fill(element("dependences"), ["", "", "model", "solver"], rows);
  const fits = [["model", predicted], ["solver", solved]].filter(([, of]) => of)
    .map(([name, of]) => `${name} ${number(of.fit, 2)}`).join(", ");
  element("dependence-note").textContent = "The share of the variance over the design space that "
    + "a parameter explains with its interactions; the dark part of the bar is what it explains "
    + "alone. Upper bar: the model; lower bar: solved designs. "
    + `Both are those of a Gaussian process, whose R2 on designs left out is: ${fits}.`;
}

const share = (indices, name) => (indices ? number(indices.total[name], 2) : "–");

function bars(predicted, solved, name) {
  const both = document.createElement("div");
  both.className = "bars";
  for (const [kind, indices] of [["model", predicted], ["solver", solved]]) {
    if (!indices) continue;
    const total = document.createElement("div"), first = document.createElement("div");
    total.className = `total ${kind}`;
    first.className = "first";
    total.style.width = `${100 * indices.total[name]}%`;
    const alone = Math.min(indices.first[name] / (indices.total[name] || 1), 1);
    first.style.width = `${100 * alone}%`;
    total.append(first);
    both.append(total);
  }
  return both;
}
