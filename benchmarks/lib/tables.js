/** @typedef {import("./answer.js").Table} Table */

/**
 * For a terminal: columns side by side, numbers to the right.
 *
 * @param {Pick<Table, "columns" | "rows">} table
 */
export function tableText({ columns, rows }) {
  const widths = columns.map((name, at) =>
    Math.max(name.length, ...rows.map((row) => (row[at] ?? "").length)),
  );
  const line = (/** @type {readonly string[]} */ cells) =>
    columns
      .map((_, at) => pad(cells[at] ?? "", widths[at] ?? 0, isNumeric(rows, at)))
      .join("  ")
      .trimEnd();
  return [line(columns), widths.map((width) => "-".repeat(width)).join("  "), ...rows.map(line)].join("\n");
}

/** @param {Pick<Table, "columns" | "rows">} table */
export function tableMarkdown({ columns, rows }) {
  const line = (/** @type {readonly string[]} */ cells) =>
    `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  const rule = `|${columns.map((_, at) => (isNumeric(rows, at) ? "---:" : "---")).join("|")}|`;
  return [line(columns), rule, ...rows.map(line)].join("\n");
}

/**
 * @param {Table["rows"]} rows
 * @param {number} at
 */
function isNumeric(rows, at) {
  return rows.every((row) => /^([-–]?|[<>=~ ]*-?[\d.,]+( ?(x|%|ms|µs|s|MB|B|GB))?)$/.test(row[at] ?? ""));
}

/**
 * @param {string} text
 * @param {number} width
 * @param {boolean} toTheRight
 */
function pad(text, width, toTheRight) {
  return toTheRight ? text.padStart(width) : text.padEnd(width);
}
