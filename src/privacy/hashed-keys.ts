import { createHmac, createSecretKey, type KeyObject } from "node:crypto";
import type { AuditQuery } from "../core/audit.ts";
import type { RecordId } from "../core/record.ts";
import { placeName } from "./envelope.ts";
import { secretBytes } from "./key-ring.ts";

/**
 * What clients' keys are called in the store: one name for each key of each scope, from which nobody without the secret
 * can tell the key, not even by trying all that it could be.
 */
export class HashedKeys {
  readonly #secret: KeyObject;

  constructor(secret: Uint8Array | string) {
    this.#secret = createSecretKey(secretBytes("hashKeys", secret));
  }

  /** The name of a key that a client sent, whatever it looks like. */
  readonly nameOf = ({ scope, key }: RecordId): string =>
    mark + createHmac("sha256", this.#secret).update(placeName(scope, key)).digest("base64url");

  /** The id of the record that an operator means: by the client's key, or by the name that a record or an event has. */
  readonly named = (id: RecordId): RecordId => ({
    scope: id.scope,
    key: isName(id.key) ? id.key : this.nameOf(id),
  });

  /** A key without its scope has no name, and finds nothing. */
  query<Query extends Partial<AuditQuery>>(query: Query): Query {
    const { scope, key } = query;
    return scope === undefined || key === undefined ? query : { ...query, ...this.named({ scope, key }) };
  }
}

const mark = "h1_";

function isName(key: string): boolean {
  return /^h1_[\w-]{43}$/.test(key);
}
