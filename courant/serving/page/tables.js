/* Numbers, names and tables as the page shows them. */

/* Pixels of a canvas for each of the page's; a saved picture has more. */
export const sharp = { times: 1 };
export const density = () => sharp.times * (window.devicePixelRatio || 1);

export const element = (id) => document.getElementById(id);

export const number = (value, digits = 4) => {
  if (value === null || value === undefined) return "unknown";
  const short = Number(value.toPrecision(digits));
  return short && Math.abs(short) < 1e-4 ? short.toExponential() : short.toString();
};

/* With its zeros: 0.60 beside ± 0.37. */
export const exact = (value, digits) => {
  const text = value === null ? "unknown" : value.toPrecision(digits);
  return text.includes("e") ? number(value, digits) : text;
};

/* Round numbers, equally far apart: between two ends, in about so many parts, and how far apart. */
export function ticksOf(low, high, parts = 5) {
  const apart = (high - low) / parts || Math.abs(high) || 1, size = 10 ** Math.floor(Math.log10(apart));
  const step = size * [1, 2, 2.5, 5, 10].find((each) => each * size >= 0.999 * apart), first = Math.ceil(low / step - 1e-9);
  const ticks = Array.from({ length: Math.max(Math.floor(high / step + 1e-9) - first + 1, 0) },
    (_, n) => Number(((first + n) * step).toPrecision(12)) + 0); // + 0 removes the sign of a negative zero
  return { ticks, step };
}

export const words = (name) => name.replaceAll("_", " ").replaceAll(".", " ");

/* m²/s² of m2/s2; a unit of 1 is none. */
const written = (unit) => (!unit || unit === "1" ? "" : unit.replace(/(?<=[a-zA-Z])-?\d/g, (power) => power.replace("-", "⁻").replace(/\d/, (n) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[n])));
export const named = (name, unit) => (written(unit) ? `${words(name)} (${written(unit)})` : words(name));
export const withUnit = (value, unit, digits) =>
  number(value, digits) + (value === null ? "" : ` ${written(unit)}`.trimEnd());

/* Cells are texts or elements. */
export function fill(table, head, rows) {
  table.replaceChildren();
  for (const [tag, cells] of [["th", head], ...rows.map((row) => ["td", row])]) {
    const line = table.insertRow();
    for (const [n, content] of cells.entries()) {
      const cell = document.createElement(tag);
      cell.dataset.name = head[n].textContent ?? head[n]; // for narrow screens
      if (tag === "th") cell.scope = "col";
      cell.append(content);
      line.append(cell);
    }
  }
}
