import type { Screen } from "./screen.ts";

export interface Column<Row> {
  readonly title: string;
  text(row: Row): string;
  /** How it is painted; nothing is if left out. */
  paint?(screen: Screen, padded: string, row: Row): string;
  /** Numbers line up on the right. */
  readonly isNumber?: boolean;
  /** The narrowest that it may become where lines are too long; never narrower if left out. */
  readonly widthMin?: number;
  /** Whether it may be missing where even the narrowest columns are too many. The last of them goes first. */
  readonly isDispensable?: boolean;
}

/** Rows in aligned columns, which give way to the width of the terminal. */
export class Table<Row> {
  readonly #screen: Screen;
  #columns: readonly Column<Row>[];
  #widths: readonly number[] | undefined;

  constructor(screen: Screen, columns: readonly Column<Row>[]) {
    this.#screen = screen;
    this.#columns = columns;
  }

  /** The widths are those of the first rows; later ones, of the next page, line up with them. */
  text(rows: readonly Row[]): string {
    const isFirst = this.#widths === undefined;
    this.#widths ??= this.#fitting(rows);
    const widths = this.#widths;
    const lines = rows.map((row) => this.#line(widths, row));
    if (isFirst) lines.unshift(this.#heading(widths));
    return lines.map((line) => `${line}\n`).join("");
  }

  #heading(widths: readonly number[]): string {
    const titles = this.#columns.map((column, index) => padded(column.title, column, widths[index] ?? 0));
    return this.#screen.paint("dim", titles.join(gap).trimEnd());
  }

  #line(widths: readonly number[], row: Row): string {
    const last = this.#columns.length - 1;
    return this.#columns
      .map((column, index) => {
        const text = padded(column.text(row), column, widths[index] ?? 0);
        const trimmed = index === last ? text.trimEnd() : text;
        return column.paint?.(this.#screen, trimmed, row) ?? trimmed;
      })
      .join(gap);
  }

  /** As wide as the widest cell; where that is too much for a line, the widest column that may gives way. */
  #fitting(rows: readonly Row[]): readonly number[] {
    const wanted = (column: Column<Row>) =>
      rows.reduce((widest, row) => Math.max(widest, lengthOf(column.text(row))), column.title.length);
    const room = this.#screen.width ?? Number.POSITIVE_INFINITY;
    const least = (column: Column<Row>) =>
      Math.max(column.title.length, Math.min(wanted(column), column.widthMin ?? Number.POSITIVE_INFINITY));
    while (lineWidth(this.#columns.map(least)) > room) {
      const dispensable = this.#columns.findLastIndex(({ isDispensable }) => isDispensable);
      if (dispensable === -1) break;
      this.#columns = this.#columns.toSpliced(dispensable, 1);
    }
    const widths = this.#columns.map(wanted);
    while (lineWidth(widths) > room) {
      const widest = this.#widestThatMayShrink(widths);
      if (widest === undefined) break;
      widths[widest] = (widths[widest] ?? 0) - 1;
    }
    return widths;
  }

  #widestThatMayShrink(widths: readonly number[]): number | undefined {
    let found: number | undefined;
    for (const [index, width] of widths.entries()) {
      const { widthMin } = this.#columns[index] ?? {};
      if (widthMin === undefined || width <= widthMin) continue;
      if (found === undefined || width > (widths[found] ?? 0)) found = index;
    }
    return found;
  }
}

const gap = "  ";

function lineWidth(widths: readonly number[]): number {
  return widths.reduce((sum, width) => sum + width, gap.length * (widths.length - 1));
}

function padded(text: string, { isNumber }: { readonly isNumber?: boolean }, width: number): string {
  const cut = lengthOf(text) > width ? `${[...text].slice(0, Math.max(0, width - 1)).join("")}…` : text;
  const padding = " ".repeat(Math.max(0, width - lengthOf(cut)));
  return isNumber ? padding + cut : cut + padding;
}

/** In code points: what is put together of several is rare in keys. */
function lengthOf(text: string): number {
  return [...text].length;
}

/** Names and what they are, one to a line. */
export function facts(screen: Screen, rows: readonly (readonly [name: string, value: string])[]): string {
  const width = rows.reduce((widest, [name]) => Math.max(widest, name.length), 0);
  return rows.map(([name, value]) => `${screen.paint("dim", name.padEnd(width))}  ${value}\n`).join("");
}
