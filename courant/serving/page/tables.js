/* Numbers, names and tables as the page shows them. */

export const element = (id) => document.getElementById(id);

export const number = (value, digits = 4) =>
  value === null || value === undefined ? "unknown" : Number(value.toPrecision(digits)).toString();

/* With its zeros: 0.60 beside ± 0.37. */
export const exact = (value, digits) => {
  const text = value === null ? "unknown" : value.toPrecision(digits);
  return text.includes("e") ? number(value, digits) : text;
};

export const words = (name) => name.replaceAll("_", " ").replaceAll(".", " ");

/* A unit of 1 is none. */
export const named = (name, unit) => (!unit || unit === "1" ? words(name) : `${words(name)} (${unit})`);
export const withUnit = (value, unit, digits) =>
  number(value, digits) + (!unit || unit === "1" || value === null ? "" : ` ${unit}`);

/* Cells are texts or elements. */
export function fill(table, head, rows) {
  table.replaceChildren();
  for (const [tag, cells] of [["th", head], ...rows.map((row) => ["td", row])]) {
    const line = table.insertRow();
    for (const content of cells) {
      const cell = document.createElement(tag);
      if (tag === "th") cell.scope = "col";
      cell.append(content);
      line.append(cell);
    }
  }
}
