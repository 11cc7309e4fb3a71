import { ConfigError } from "../../core/errors.ts";

/** A number among the options, or what it is if nothing was said. */
export function whole<Name extends string>(
  options: { readonly [Option in Name]?: number | undefined },
  name: Name,
  { otherwise, least }: { readonly otherwise: number; readonly least: number },
): number {
  const value = options[name] ?? otherwise;
  if (Number.isSafeInteger(value) && value >= least) return value;
  throw new ConfigError(`${name} is ${value} and must be a whole number of at least ${least}`);
}
