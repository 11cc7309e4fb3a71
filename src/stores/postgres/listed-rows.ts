import type { ListedRecord } from "../../core/record.ts";
import { listedColumns, listedOf } from "../listed-row.ts";
import type { ColumnValue } from "../record-row.ts";
import type { Row } from "./database.ts";
import { wordOf } from "./distributed/statements.ts";

export interface ListedRow extends Row {
  readonly scope: string;
  readonly key: string;
}

/** Answers have single words for names: see statements/sql.ts. */
export function recordOf(row: ListedRow): ListedRecord {
  const columns = Object.fromEntries(listedColumns.map((name) => [name, row[wordOf(name)] as ColumnValue]));
  return listedOf(row, columns as Record<(typeof listedColumns)[number], ColumnValue>);
}
