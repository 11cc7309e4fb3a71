import { readFile } from "node:fs/promises";
import { failed, usage } from "./failure.ts";
import { visible } from "./screen.ts";

/** Headers, each given as `name: value`. */
export function headersOf(given: readonly string[], option = "--header"): Readonly<Record<string, string>> {
  const headers: Record<string, string> = {};
  for (const line of given) {
    const [, name, value] = /^([!#$%&'*+.^_`|~\w-]+):\s*(.*?)\s*$/.exec(line) ?? [];
    if (name === undefined || value === undefined)
      throw usage(`${option} is "${visible(line)}" and must be "name: value"`);
    headers[name.toLowerCase()] = value;
  }
  return headers;
}

/** The same, where `@FILE` stands for the lines of a file: everybody on the machine can read a command line. */
export async function headersOrFiles(
  given: readonly string[],
  option = "--header",
): Promise<Readonly<Record<string, string>>> {
  const lines = await Promise.all(
    given.map(async (one) => (await textOrFile(one)).split(/\r?\n/).filter((line) => line.trim() !== "")),
  );
  return headersOf(lines.flat(), option);
}

/** A text as it is, or with `@FILE` what the file has. */
export async function textOrFile(given: string): Promise<string> {
  if (!given.startsWith("@")) return given;
  const file = given.slice(1);
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    throw failed(`${file} cannot be read: ${(error as Error).message}`);
  }
}
