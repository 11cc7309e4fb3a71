import { hash } from "node:crypto";
import type { AuditQuery } from "../core/audit.ts";
import type { RecordId } from "../core/record.ts";
import { placeName } from "./envelope.ts";
import { secretBytes } from "./key-ring.ts";

/**
 * What clients' keys are called in the store: one name for each key of each scope, from which nobody without the secret
 * can tell the key, not even by trying all that it could be.
 */
export class HashedKeys {
  /** What the secret is to the two hashes that HMAC is made of. */
  readonly #inner: Buffer;
  readonly #outer: Buffer;

  constructor(secret: Uint8Array | string) {
    const bytes = secretBytes("hashKeys", secret);
    this.#inner = padded(bytes, 0x36);
    this.#outer = padded(bytes, 0x5c);
  }

  /** The name of a key that a client sent, whatever it looks like. */
  readonly nameOf = ({ scope, key }: RecordId): string => {
    // HMAC-SHA256, by two hashes at once: the object that Node makes for each HMAC costs more than all of it.
    const text = Buffer.from(placeName(scope, key));
    const inner = hash("sha256", Buffer.concat([this.#inner, text]), "buffer");
    return mark + hash("sha256", Buffer.concat([this.#outer, inner]), "base64url");
  };

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

/** A secret of 32 bytes as a block of SHA-256, as RFC 2104 says. */
function padded(secret: Buffer, pad: number): Buffer {
  const block = Buffer.alloc(64, pad);
  for (const [index, byte] of secret.entries()) block[index] = byte ^ pad;
  return block;
}

const mark = "h1_";

function isName(key: string): boolean {
  return /^h1_[\w-]{43}$/.test(key);
}
