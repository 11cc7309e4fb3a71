import type { Check } from "../check.ts";
import { concurrency } from "./concurrency.ts";
import { disconnect } from "./disconnect.ts";
import { errors } from "./errors.ts";
import { headers } from "./headers.ts";
import { hygiene } from "./hygiene.ts";
import { jsonEquality } from "./json-equality.ts";
import { keyFormat } from "./key-format.ts";
import { keyRequired } from "./key-required.ts";
import { misuse } from "./misuse.ts";
import { problems } from "./problems.ts";
import { replay } from "./replay.ts";

/** In the order in which they run: what others need comes before them. */
export const checks: readonly Check[] = [
  ...keyRequired,
  ...replay,
  ...keyFormat,
  ...misuse,
  ...concurrency,
  ...jsonEquality,
  ...disconnect,
  ...errors,
  ...problems,
  ...hygiene,
  ...headers,
];
