import { readFile } from "node:fs/promises";
import type { Operator } from "../admin/operators.ts";
import type { Context } from "./context.ts";
import { failed, usage } from "./failure.ts";

/** Who may use the admin API. From a file or the environment: what is on a command line can be read by everybody. */
export async function operatorsOf(context: Context, file: string | undefined): Promise<readonly Operator[]> {
  const given = file === undefined ? context.env.LATCHKEY_OPERATORS : await contentOf(file);
  if (!given?.trim()) {
    throw usage(
      "the admin API needs to know who may use it: pass --operators FILE, or set LATCHKEY_OPERATORS",
    );
  }
  const operators = given.trimStart().startsWith("[")
    ? fromJson(given)
    : given
        .trim()
        .split(/[,\n]+/)
        .map(fromEntry);
  // What is none is complained about by the admin API itself.
  for (const operator of operators)
    if (typeof operator?.token === "string") context.secrets.add(operator.token);
  return operators;
}

async function contentOf(file: string): Promise<string> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    throw failed(`the operators in ${file} cannot be read: ${(error as Error).message}`);
  }
}

function fromJson(given: string): readonly Operator[] {
  try {
    return JSON.parse(given);
  } catch {
    throw usage("the operators begin with [ and are no JSON");
  }
}

function fromEntry(entry: string): Operator {
  const [, name, token, readOnly] = /^\s*([^:]+):(.+?)(:read-only)?\s*$/.exec(entry) ?? [];
  if (name === undefined || token === undefined) {
    throw usage(
      'operators are name:token or name:token:read-only, separated by commas, or [{"name":"…","token":"…"}]',
    );
  }
  return { name, token, ...(readOnly === undefined ? {} : { readOnly: true }) };
}
