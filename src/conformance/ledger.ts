import type { Settings } from "./options.ts";
import { NoAnswerError, send } from "./wire.ts";

/** The ledger cannot be asked, or says what no ledger says: nothing can be concluded from it. */
export class LedgerError extends Error {
  override readonly name = "LedgerError";
}

/** How often something was done under a key; undefined if no ledger was given. */
export async function effectsOf(key: string, settings: Settings): Promise<number | undefined> {
  const { effects } = settings;
  if (effects === undefined) return undefined;
  const counted = typeof effects === "function" ? await effects(key) : await asked(effects, key, settings);
  if (typeof counted === "number" && Number.isInteger(counted) && counted >= 0) return counted;
  throw new LedgerError(
    `the ledger must answer with how many effects a key had, and said ${JSON.stringify(counted)}`,
  );
}

async function asked(
  template: string,
  key: string,
  { url: api, headers, timeoutMs }: Settings,
): Promise<unknown> {
  const url = new URL(template.replaceAll("{key}", encodeURIComponent(key)));
  // Credentials of the API are for the API, and not for whoever else is asked.
  const fields =
    url.origin === api.origin ? Object.entries(headers).filter(([name]) => name !== "content-type") : [];
  try {
    const { status, body } = await send({ method: "GET", url, fields, body: undefined, timeoutMs });
    if (status !== 200) throw new LedgerError(`the ledger answered ${status} to GET ${url.pathname}`);
    return countIn(JSON.parse(body.toString("utf8")));
  } catch (error) {
    if (error instanceof NoAnswerError) throw new LedgerError(`the ledger did not answer: ${error.message}`);
    if (error instanceof SyntaxError)
      throw new LedgerError("the ledger answered with something that is no JSON");
    throw error;
  }
}

function countIn(document: unknown): unknown {
  if (Array.isArray(document)) return document.length;
  if (typeof document === "object" && document !== null && "count" in document) return document.count;
  return document;
}
