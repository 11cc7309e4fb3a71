import { readFileSync } from "node:fs";

/** What one of the engines or another does not have, or has in another sense; see docs/distributed-sql.md. */
const forbidden: Readonly<Record<string, RegExp>> = {
  "advisory locks": /advisory/i,
  notifications: /\b(LISTEN|UNLISTEN|NOTIFY|pg_notify)\b/i,
  "row locks": /\bFOR (NO KEY UPDATE|UPDATE|SHARE|KEY SHARE)\b|SKIP LOCKED/i,
  "functions of our own":
    /CREATE (OR REPLACE )?(FUNCTION|PROCEDURE)|\bDO \$|plpgsql|\blatchkey_(?!dist_)\w+/i,
  "objects that some lack":
    /\b(TRIGGER|SEQUENCE|SERIAL|IDENTITY|COLLATE|FILLFACTOR|PARTITION BY|UNLOGGED|REFERENCES)\b/i,
  "partial indexes": /CREATE INDEX[^;]*\bWHERE\b/i,
  "writes within a query": /\bWITH\b/i,
  "what only Postgres knows of itself":
    /\b(xmin|ctid|regclass|pg_xact_status|pg_current_xact_id|current_setting|set_config|SET LOCAL)\b/i,
  "functions that make rows": /\b(unnest|json\w*|generate_series|LATERAL|ROWS FROM)\b/i,
  // CockroachDB's has eight bytes, and drivers hand such numbers out as text.
  "an integer of unknown width": /\bINTEGER\b|::int\b/i,
  savepoints: /\bSAVEPOINT\b/i,
};

/** Why a statement is not plain; undefined if it is. */
export function complaintAbout(statement: string): string | undefined {
  for (const [what, pattern] of Object.entries(forbidden)) if (pattern.test(statement)) return what;
  const text = squeezed(statement);
  const [verb] = text.split(" ");
  if ((verb === "UPDATE" || verb === "DELETE") && / latchkey_dist_records /.test(text)) {
    if (!text.includes("WHERE scope = $1 AND key = $2")) return "a write without scope and key";
    if (/clock_timestamp/.test(text)) return "a volatile function in a write";
  }
  if (/RETURNING .*\(/.test(text)) return "a function in RETURNING";
  return undefined;
}

const documented = readFileSync(new URL("../../docs/distributed-sql.md", import.meta.url), "utf8");
const listed: ReadonlySet<string> = new Set(
  [...documented.matchAll(/```sql\n(.*?)```/gs)].flatMap(([, block]) =>
    (block ?? "")
      .replace(/^--.*$/gm, "")
      .split(";")
      .map(nameless)
      .filter((text) => text !== ""),
  ),
);

/** Whether the documentation shows this statement, with any number of parameters in its lists. */
export function isListed(statement: string): boolean {
  return listed.has(nameless(statement));
}

/** What is listed and not among these. */
export function unseen(statements: Iterable<string>): string[] {
  const seen = new Set([...statements].map(nameless));
  return [...listed].filter((text) => !seen.has(text));
}

function nameless(statement: string): string {
  return squeezed(statement)
    .replace(/IN \((\$\d+)(, \$\d+)*\)/g, "IN ($…)")
    .replace(
      /(INSERT INTO latchkey_dist_(outbox|lanes) .*? VALUES) .*?( ON CONFLICT DO NOTHING)?$/,
      "$1 …$3",
    );
}

function squeezed(text: string): string {
  return text.replace(/\s+/g, " ").trim();
}
