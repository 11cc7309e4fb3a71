import { readFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { createLocalJWKSet, type JSONWebKeySet } from "jose";
import { error, type Finding } from "./findings.ts";

/** Where a file of public keys is: relative to the configuration's folder. */
export function jwksPath(jwksFile: string, file: string | undefined): string {
  return resolve(dirname(file ?? "."), jwksFile);
}

/** A file of public keys is read at the start, and so it is looked at here. Its name may be a secret, and is not said. */
export async function jwksFileChecks(path: string): Promise<Finding[]> {
  try {
    createLocalJWKSet(JSON.parse(await readFile(path, "utf8")) as JSONWebKeySet);
    return [];
  } catch (problem) {
    return [error(["jwt", "jwksFile"], `cannot be used: ${reasonOf(problem)}`)];
  }
}

function reasonOf(problem: unknown): string {
  if (problem instanceof SyntaxError) return "it is not JSON";
  const { code } = problem as NodeJS.ErrnoException;
  if (code === "ENOENT") return "there is no such file";
  if (code === "ERR_JWKS_INVALID") return 'it is not a set of keys, such as {"keys":[…]}';
  return `it cannot be read (${code})`;
}
