/** What a batch is called with: one array for each column, or one value for all of its calls. */
export type BatchParameter = ArrayParameter | boolean | number;

export interface ArrayParameter {
  readonly type: keyof typeof typeIds;
  /** Null: none of the calls has any. */
  readonly values: readonly ArrayValue[] | null;
}

type ArrayValue = string | number | Uint8Array | null;

/** The numbers that Postgres has for its types. */
const typeIds = { int4: 23, text: 25, bytea: 17, float8: 701 } as const;

/** The call of a function. `cast` says what an array parameter arrives as. */
export function batchStatement(
  name: string,
  parameters: readonly BatchParameter[],
  cast: (type: string) => string,
): string {
  const typed = parameters.map((parameter, index) => `$${index + 1}::${castOf(parameter, cast)}`);
  return `SELECT * FROM ${name}(${typed.join(", ")})`;
}

function castOf(parameter: BatchParameter, cast: (type: string) => string): string {
  if (typeof parameter === "boolean") return "bool";
  if (typeof parameter === "number") return "float8";
  return cast(`${parameter.type}[]`);
}

/**
 * An array in Postgres's own binary form, for drivers that send bytes as they are. It takes a third less time than text,
 * on both sides, and bodies need not become hexadecimal.
 */
export function binaryArray(type: ArrayParameter["type"], values: readonly ArrayValue[]): Buffer {
  const sizes = values.map((value) => sizeOf(type, value));
  const bytes = Buffer.allocUnsafe(sizes.reduce((sum, size) => sum + 4 + Math.max(0, size), headerBytes));
  bytes.writeInt32BE(1, 0); // dimensions
  bytes.writeInt32BE(1, 4); // there may be NULLs
  bytes.writeInt32BE(typeIds[type], 8);
  bytes.writeInt32BE(values.length, 12);
  bytes.writeInt32BE(1, 16); // the first index
  let offset = headerBytes;
  for (const [index, value] of values.entries()) {
    const size = sizes[index] ?? 0;
    bytes.writeInt32BE(size, offset);
    offset += 4;
    if (value === null) continue;
    if (typeof value === "string") bytes.write(value, offset, "utf8");
    else if (typeof value !== "number") bytes.set(value, offset);
    else if (type === "int4") bytes.writeInt32BE(value, offset);
    else bytes.writeDoubleBE(value, offset);
    offset += size;
  }
  return bytes;
}

const headerBytes = 20;

/** -1 stands for NULL. */
function sizeOf(type: ArrayParameter["type"], value: ArrayValue): number {
  if (value === null) return -1;
  if (typeof value === "string") return Buffer.byteLength(value);
  if (typeof value === "number") return type === "int4" ? 4 : 8;
  return value.byteLength;
}

/** An array as text, for drivers that disagree on arrays, since all agree on text. */
export function arrayLiteral(values: readonly ArrayValue[]): string {
  return `{${values.map(literalOf).join(",")}}`;
}

function literalOf(value: ArrayValue): string {
  if (value === null) return "NULL";
  if (typeof value === "object") return `"\\\\x${Buffer.from(value).toString("hex")}"`;
  return `"${String(value).replace(/["\\]/g, "\\$&")}"`;
}
