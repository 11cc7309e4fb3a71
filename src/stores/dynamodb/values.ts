import type { AttributeValue } from "@aws-sdk/client-dynamodb";
import { moment } from "../record-row.ts";

/** One item of the table, as the wire has it. */
export type Item = Record<string, AttributeValue>;

export function text(value: string): AttributeValue {
  return { S: value };
}

/** A number, and so a time: what never ends, ends as late as there are dates. */
export function number(value: number): AttributeValue {
  return { N: String(moment(value)) };
}

export function bytes(value: Uint8Array): AttributeValue {
  return { B: value };
}

/** The attributes that have a value. */
export function present(values: Readonly<Record<string, AttributeValue | undefined>>): Item {
  const item: Item = {};
  for (const [name, value] of Object.entries(values)) if (value !== undefined) item[name] = value;
  return item;
}

export function optionalText(value: string | null | undefined): AttributeValue | undefined {
  return value === undefined || value === null ? undefined : text(value);
}

export function optionalNumber(value: number | undefined): AttributeValue | undefined {
  return value === undefined ? undefined : number(value);
}

export function textIn(item: Item, name: string): string {
  return item[name]?.S ?? missing(item, name);
}

export function textInIf(item: Item, name: string): string | undefined {
  return item[name]?.S;
}

export function numberIn(item: Item, name: string): number {
  return Number(item[name]?.N ?? missing(item, name));
}

export function numberInIf(item: Item, name: string): number | undefined {
  const value = item[name]?.N;
  return value === undefined ? undefined : Number(value);
}

export function bytesInIf(item: Item, name: string): Uint8Array | undefined {
  return item[name]?.B;
}

function missing(item: Item, name: string): never {
  throw new Error(`the item ${JSON.stringify(item.pk)} ${JSON.stringify(item.sk)} has no "${name}"`);
}

/** About what DynamoDB counts for an item: the names and the values, and a little for each. */
export function bytesOf(item: Item): number {
  let sum = 0;
  for (const [name, value] of Object.entries(item)) {
    sum += name.length + 3;
    if (value.S !== undefined) sum += Buffer.byteLength(value.S);
    else if (value.B !== undefined) sum += value.B.byteLength;
    else sum += value.N === undefined ? Buffer.byteLength(JSON.stringify(value)) : value.N.length;
  }
  return sum;
}

/** An item holds 400 KiB; the rest is for what is counted differently from here. */
export const itemBytesMax = 400 * 1024 - 2_048;

/**
 * How far a request that is kept and the results of phases may fill an item. The rest is for what every later move adds,
 * such as why an execution failed: a record that has no room for it could never be moved on.
 */
export const contentBytesMax = 400 * 1024 - 8 * 1024;
