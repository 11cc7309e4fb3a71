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
  /** What the secret is to the two hashes that HMAC is made of, each with room behind it for what is hashed with it. */
  readonly #inner: Buffer;
  readonly #outer: Buffer;

  constructor(secret: Uint8Array | string) {
    const bytes = secretBytes("hashKeys", secret);
    this.#inner = padded(bytes, 0x36, textBytesMax);
    this.#outer = padded(bytes, 0x5c, digestBytes);
  }

  /** The name of a key that a client sent, whatever it looks like. */
  readonly nameOf = ({ scope, key }: RecordId): string => {
    // HMAC-SHA256, by two hashes at once: the object that Node makes for each HMAC costs more than all of it.
    this.#outer.write(hash("sha256", this.#keyed(placeName(scope, key)), "binary"), blockBytes, "binary");
    return mark + hash("sha256", this.#outer, "base64url");
  };

  #keyed(text: string): Buffer {
    // Names are ASCII, and short; whatever else somebody may call a key has a buffer of its own.
    if (text.length * utf8BytesMax > textBytesMax) {
      return Buffer.concat([this.#inner.subarray(0, blockBytes), Buffer.from(text)]);
    }
    const end = blockBytes + this.#inner.write(text, blockBytes);
    return this.#inner.subarray(0, end);
  }

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

/** Of SHA-256. */
const blockBytes = 64;
const digestBytes = 32;

/** A scope and a key, as long as they may be. */
const textBytesMax = 4096;
const utf8BytesMax = 3;

/** A secret of 32 bytes as a block of SHA-256, as RFC 2104 says, and room behind it. */
function padded(secret: Buffer, pad: number, room: number): Buffer {
  const block = Buffer.alloc(blockBytes + room, pad);
  for (const [index, byte] of secret.entries()) block[index] = byte ^ pad;
  return block;
}

const mark = "h1_";

function isName(key: string): boolean {
  return /^h1_[\w-]{43}$/.test(key);
}
