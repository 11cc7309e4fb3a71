import { hash, randomBytes } from "node:crypto";
import { StoreError, StoreRefusedError, UnreadableError } from "../core/errors.ts";
import type { Envelope, SealingKey } from "./envelope.ts";
import type { KeyRing, TenantSecrets } from "./key-ring.ts";

/** What was sealed with a secret that the tenant does not have any more. Nobody can open it. */
export const shredded = Symbol("shredded");
export type Shredded = typeof shredded;

/** How long a process may go on with a tenant's secret without looking whether it is still there. */
export const secretMsMax = 60_000;

/** The keys of all tenants, as far as this process has needed them lately. */
export class TenantKeys {
  readonly #ring: KeyRing;
  readonly #secrets: TenantSecrets;
  readonly #now: () => number;
  readonly #known = new Map<string, TenantSecret>();
  readonly #looking = new Map<string, Looking>();
  /** Secrets that are known to be gone: a secret that was removed never comes back. */
  readonly #gone = new Set<string>();
  #removals = 0;

  constructor(options: {
    readonly ring: KeyRing;
    readonly secrets: TenantSecrets;
    readonly now: () => number;
  }) {
    this.#ring = options.ring;
    this.#secrets = options.secrets;
    this.#now = options.now;
  }

  /** The key to seal with, if it is at hand. */
  sealingAtOnce(tenantScope: string): SealingKey | undefined {
    const { currentId, currentKey, perTenant } = this.#ring;
    if (!perTenant) return currentKey;
    const known = this.#cached(tenantScope);
    return known && this.#keyOf(tenantScope, known, currentId);
  }

  /** The key to seal with. A tenant that has no secret gets one. */
  sealing(tenantScope: string): SealingKey | Promise<SealingKey> {
    const atHand = this.sealingAtOnce(tenantScope);
    if (atHand !== undefined) return atHand;
    return this.#look(tenantScope)
      .then((found) => found ?? this.#make(tenantScope))
      .then((secret) => this.#keyOf(tenantScope, secret, this.#ring.currentId));
  }

  /** The key that opens what the envelope holds. */
  opening(
    tenantScope: string,
    { keyId, tag }: Envelope,
  ): SealingKey | Shredded | Promise<SealingKey | Shredded> {
    // It was sealed while tenants had no keys of their own.
    if (tag.length === 0) return this.#inRing(this.#ring.ownKey(keyId), keyId);
    const known = this.#cached(tenantScope);
    if (known?.tag.equals(tag)) return this.#keyOf(tenantScope, known, keyId);
    const name = `${tenantScope} ${tag.toString("hex")}`;
    if (this.#gone.has(name)) return shredded;
    // Another process may have given the tenant a new secret since. A question that was asked before does not count: its
    // answer may be older than what is to be opened.
    return this.#ask(tenantScope, () => this.#secrets.get(tenantScope)).then((found) => {
      if (found?.tag.equals(tag)) return this.#keyOf(tenantScope, found, keyId);
      if (this.#gone.size >= goneMax) this.#gone.clear();
      this.#gone.add(name);
      return shredded;
    });
  }

  /** Makes everything that was sealed for the tenant unreadable. */
  async remove(tenantScope: string): Promise<void> {
    try {
      await this.#secrets.remove(tenantScope);
    } finally {
      // Also after a failure: it may be gone, and what is sealed with it from now on could not be opened.
      this.#removals += 1;
      this.#known.delete(tenantScope);
      this.#looking.delete(tenantScope);
    }
  }

  /** Looks for the secret, which re-seals it where an old key has sealed it. */
  async reseal(tenantScope: string): Promise<void> {
    await this.#look(tenantScope);
  }

  #cached(tenantScope: string): TenantSecret | undefined {
    const known = this.#known.get(tenantScope);
    if (known === undefined) return undefined;
    const ageMs = this.#now() - known.readAt;
    if (ageMs >= secretMsMax) return undefined;
    // Looked for before it is needed, so that a busy tenant never waits for it.
    if (ageMs >= secretMsMax / 2) this.#look(tenantScope).catch(() => {});
    return known;
  }

  /** One question for all who ask at once. */
  #look(tenantScope: string): Promise<TenantSecret | undefined> {
    const since = this.#now();
    const looking = this.#looking.get(tenantScope);
    // One that is never answered must not be waited for by all who come after.
    if (looking !== undefined && since - looking.since < lookMsMax) return looking.asked;
    const asked = this.#ask(tenantScope, () => this.#secrets.get(tenantScope)).finally(() => {
      if (this.#looking.get(tenantScope)?.asked === asked) this.#looking.delete(tenantScope);
    });
    this.#looking.set(tenantScope, { asked, since });
    return asked;
  }

  async #make(tenantScope: string): Promise<TenantSecret> {
    const secret = randomBytes(secretBytesLength);
    const made = await this.#ask(tenantScope, () => this.#secrets.create(tenantScope, secret));
    if (made === undefined) throw new StoreError("the vault has neither kept a tenant's secret nor another");
    return made;
  }

  async #ask(
    tenantScope: string,
    question: () => Promise<Uint8Array | undefined>,
  ): Promise<TenantSecret | undefined> {
    const readAt = this.#now();
    const removals = this.#removals;
    const bytes = await question().catch((cause: unknown): never => {
      // A vault that fails, or fails for one tenant, is no reason to take the store for sick.
      if (cause instanceof StoreError) throw cause;
      throw new StoreRefusedError("the vault did not answer for a tenant's secret", { cause });
    });
    const before = this.#known.get(tenantScope);
    if (bytes === undefined) {
      if (removals === this.#removals) this.#known.delete(tenantScope);
      return undefined;
    }
    const tag = tagOf(bytes);
    // Deriving keys anew each minute would be for nothing.
    const keys = before?.tag.equals(tag) ? before.keys : new Map<string, SealingKey>();
    const found = { bytes, tag, readAt, keys };
    // What was read before a removal may be what was removed.
    if (removals === this.#removals) this.#keep(tenantScope, found);
    return found;
  }

  #keep(tenantScope: string, found: TenantSecret): void {
    this.#known.delete(tenantScope);
    this.#known.set(tenantScope, found);
    if (this.#known.size <= knownMax) return;
    const [oldest] = this.#known.keys();
    if (oldest !== undefined) this.#known.delete(oldest);
  }

  #keyOf(tenantScope: string, secret: TenantSecret, keyId: string): SealingKey {
    const known = secret.keys.get(keyId);
    // A key that was retired must not go on opening because its offspring was kept.
    if (known !== undefined && this.#ring.has(keyId)) return known;
    const key = this.#inRing(this.#ring.tenantKey(keyId, tenantScope, secret.bytes, secret.tag), keyId);
    secret.keys.set(keyId, key);
    return key;
  }

  #inRing(key: SealingKey | undefined, keyId: string): SealingKey {
    if (key !== undefined) return key;
    throw new UnreadableError(
      `something was sealed with the key "${keyId}", which is not in this process's ring: put it into keyRing`,
    );
  }
}

interface TenantSecret {
  readonly bytes: Uint8Array;
  /** Tells one secret from another, and nothing else about it. */
  readonly tag: Buffer;
  readonly readAt: number;
  /** By the ids of the master keys. */
  readonly keys: Map<string, SealingKey>;
}

interface Looking {
  readonly asked: Promise<TenantSecret | undefined>;
  readonly since: number;
}

/** As long as a store has to answer, by default. */
const lookMsMax = 5_000;

const secretBytesLength = 32;
const tagBytes = 8;
const knownMax = 10_000; // About five megabytes.
const goneMax = 10_000;

function tagOf(secret: Uint8Array): Buffer {
  const parts = Buffer.concat([Buffer.from("latchkey secret"), secret]);
  return hash("sha256", parts, "buffer").subarray(0, tagBytes);
}
