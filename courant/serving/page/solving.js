/* Has the design that is shown solved, where the server can start the solver. */

import { ask } from "./server.js";
import { element } from "./tables.js";

const AGAIN_MS = 3000;
// The address that the command prints ends with it; the server gives it to nobody.
const token = { "x-courant-token": location.hash.slice(1) };
// A page that is loaded again goes on with the run that it had started.
const UNDER_WAY = "courant-solve";

/* `design` returns the design that is shown; `solved` is called once it is in the dataset. */
export async function offerSolving(design, solved) {
  const offer = await ask("solving"), button = element("solve");
  if (!offer.available || location.hash.length < 2) {
    element("solve-state").textContent = offer.available
      ? "To start the solver from here, open the page by the whole address that the command has printed."
      : `It cannot be started from here: ${offer.reason}.`;
    return;
  }
  button.hidden = false;
  const show = async (solve) => {
    button.disabled = true;
    try {
      await follow(await solve, solved);
    } catch (error) {
      say(error.message);
    }
    button.disabled = false;
  };
  button.addEventListener("click", () => show(ask("solves", { parameters: design() }, token)));
  const begun = sessionStorage.getItem(UNDER_WAY);
  if (!begun) return;
  sessionStorage.removeItem(UNDER_WAY); // kept again once the server knows it
  show(ask(`solves/${begun}`, undefined, token));
}

async function follow(begun, solved) {
  let solve = begun;
  sessionStorage.setItem(UNDER_WAY, solve.id);
  link(solve);
  while (!solve.ended) {
    say(`The solver's run is ${solve.state.toLowerCase()}.`);
    await new Promise((resolve) => { setTimeout(resolve, AGAIN_MS); });
    solve = await ask(`solves/${solve.id}`, undefined, token);
  }
  sessionStorage.removeItem(UNDER_WAY);
  if (solve.reason) say(`It was not solved: ${solve.reason}.`);
  else {
    say("Solved: the design is in the dataset.");
    await solved();
  }
}

const say = (line) => { element("solve-state").textContent = line; };

function link(solve) {
  const place = element("solve-run");
  place.replaceChildren();
  if (!solve.url) return;
  const made = document.createElement("a");
  Object.assign(made, { href: solve.url, target: "_blank", rel: "noopener",
    textContent: "The run in Prefect's UI" });
  place.append(made);
}
