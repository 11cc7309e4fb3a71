import { hash, randomUUID } from "node:crypto";
import { StoreError, UnreadableError } from "../core/errors.ts";
import { type Note, type Notes, removeNote } from "../core/notes.ts";
import { bytesOf, envelopeOf, isSealedText, open, placeName, seal, textOf } from "./envelope.ts";
import type { KeyRing, TenantSecrets } from "./key-ring.ts";

/** The secrets of tenants in the store's own notes, sealed with the ring's current key. */
export class NoteSecrets implements TenantSecrets {
  readonly #notes: Notes;
  readonly #ring: KeyRing;
  readonly #reseals: boolean;

  /** `reseals: false` is for whoever only looks: the ring of a tool must not decide what a service can open. */
  constructor(notes: Notes, ring: KeyRing, { reseals = true }: { readonly reseals?: boolean } = {}) {
    this.#notes = notes;
    this.#ring = ring;
    this.#reseals = reseals;
  }

  async get(tenantScope: string): Promise<Uint8Array | undefined> {
    const note = await this.#read(tenantScope);
    if (note === undefined) return undefined;
    const { secret, keyId } = this.#open(tenantScope, note);
    // An old key can be retired once nothing needs it any more. Whoever is faster has done the same.
    if (this.#reseals && keyId !== this.#ring.currentId) await this.#write(tenantScope, note.version, secret);
    return secret;
  }

  async create(tenantScope: string, secret: Uint8Array): Promise<Uint8Array> {
    const found = await this.#write(tenantScope, undefined, secret);
    return found === undefined ? secret : this.#open(tenantScope, found).secret;
  }

  async remove(tenantScope: string): Promise<void> {
    if (!(await removeNote(this.#notes, secretNoteName(tenantScope)))) {
      throw new StoreError("the secret of a tenant could not be removed, because others keep changing it");
    }
    // Also where the note was gone already: an earlier call may have come no further than that.
    await this.#notes.scrub?.();
  }

  async #read(tenantScope: string): Promise<Note | undefined> {
    return (await this.#notes.read([secretNoteName(tenantScope)])).notes[0];
  }

  /** Answers with the note that is there, if somebody was faster. */
  async #write(
    tenantScope: string,
    expected: string | undefined,
    secret: Uint8Array,
  ): Promise<Note | undefined> {
    const value = textOf(seal(this.#ring.currentKey, placeOf(tenantScope), secret));
    const name = secretNoteName(tenantScope);
    const { answers } = await this.#notes.write([{ name, expected, note: { value, version: randomUUID() } }]);
    const [answer] = answers;
    return answer?.kind === "conflict" ? answer.note : undefined;
  }

  #open(tenantScope: string, { value }: Note): { readonly secret: Buffer; readonly keyId: string } {
    if (!isSealedText(value))
      throw new UnreadableError("the secret of a tenant is not sealed: it was changed");
    const envelope = envelopeOf(bytesOf(value));
    const { keyId } = envelope;
    const key = this.#ring.ownKey(keyId);
    if (key === undefined) {
      throw new UnreadableError(
        `the secret of a tenant is sealed with the key "${keyId}", which this process does not have: put it back into ` +
          "the ring, and have the tenant's secret sealed anew (resealTenant) before it is retired",
      );
    }
    return { secret: open(envelope, key, placeOf(tenantScope)), keyId };
  }
}

/** Where a tenant's secret is. Who the tenant is does not have to stand there once more. */
function secretNoteName(tenantScope: string): string {
  return `secret/${hash("sha256", tenantScope, "base64url")}`;
}

function placeOf(tenantScope: string): string {
  return placeName("tenant secret", tenantScope);
}
