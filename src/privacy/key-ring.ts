import { createSecretKey, hkdfSync, type KeyObject } from "node:crypto";
import { ConfigError } from "../core/errors.ts";
import { type SealingKey, sealingKey } from "./envelope.ts";

/** One master key. Its id is stored beside everything that is sealed with it, in the clear. */
export interface RingKey {
  /** 1 to 32 letters, digits, dots, dashes or underscores; never used for another secret. */
  readonly id: string;
  /** 32 random bytes, or the same as 64 hexadecimal digits or as base64url. */
  readonly secret: Uint8Array | string;
}

/** Where the secrets of tenants live, if not beside the records: a vault that backups of the database do not hold. */
export interface TenantSecrets {
  /** Undefined if there is none, or not any more. */
  get(tenantScope: string): Promise<Uint8Array | undefined>;
  /** Keeps `secret`, unless the tenant has one already; answers with the one that is kept, to all who ask at once. */
  create(tenantScope: string, secret: Uint8Array): Promise<Uint8Array>;
  /** After this nobody gets it any more. */
  remove(tenantScope: string): Promise<void>;
}

export interface KeyRingOptions {
  /**
   * Whether each tenant has a key of its own, made from the master key and a random secret, so that what is stored of
   * the tenant becomes unreadable when that secret is removed. True if left out.
   */
  readonly perTenant?: boolean;
  /** Where these secrets live; in the store's own notes, sealed with the master key, if left out. */
  readonly tenantSecrets?: TenantSecrets;
  /** Refuses what is not sealed. Leave it out until everything that was stored before encryption has expired. */
  readonly refusePlain?: boolean;
}

/** The master keys of one deployment. The current one seals, all of them open. */
export class KeyRing {
  readonly perTenant: boolean;
  readonly refusePlain: boolean;
  readonly tenantSecrets: TenantSecrets | undefined;
  readonly #masters = new Map<string, Master>();
  #current: SealingKey;

  constructor(keys: readonly RingKey[], options: KeyRingOptions = {}) {
    const { perTenant = true, refusePlain = false, tenantSecrets } = options;
    const [first] = keys;
    if (first === undefined) throw new ConfigError(`keyRing needs at least one key: ${howToMakeOne}`);
    if (tenantSecrets !== undefined && !perTenant) {
      throw new ConfigError("keyRing was given tenantSecrets and perTenant: false: leave one of them out");
    }
    this.perTenant = perTenant;
    this.refusePlain = refusePlain;
    this.tenantSecrets = tenantSecrets;
    this.#current = this.#add(first);
    for (const key of keys) this.#add(key);
  }

  /** The id of the key that seals. */
  get currentId(): string {
    return this.#current.id;
  }

  /** @internal The key that seals what is no tenant's. */
  get currentKey(): SealingKey {
    return this.#current;
  }

  /**
   * Makes a key the current one. Every process must be able to open with it before the first one seals with it: put it
   * into the ring of all of them first, behind the current one.
   */
  rotate(key: RingKey): void {
    this.#current = this.#add(key);
  }

  /** Forgets a key: what was sealed with it does not open any more. */
  retire(id: string): void {
    if (id === this.currentId) {
      throw new ConfigError(`the key "${id}" is the one that seals: rotate to another before it is retired`);
    }
    if (!this.#masters.delete(id)) throw new ConfigError(`there is no key "${id}" in this ring`);
  }

  /** @internal Whether this process can open what was sealed with the key. */
  has(id: string): boolean {
    return this.#masters.has(id);
  }

  /** @internal The key of no tenant in particular; undefined if it is not in the ring. */
  ownKey(id: string): SealingKey | undefined {
    return this.#masters.get(id)?.own;
  }

  /** @internal A tenant's key: nobody can make it without the tenant's secret. */
  tenantKey(id: string, tenantScope: string, secret: Uint8Array, tag: Buffer): SealingKey | undefined {
    const master = this.#masters.get(id);
    if (master === undefined) return undefined;
    return sealingKey(id, tag, derived(master.secret, secret, `latchkey ${tenantScope}`));
  }

  #add({ id, secret }: RingKey): SealingKey {
    if (typeof id !== "string" || !/^[\w.-]{1,32}$/.test(id)) {
      throw new ConfigError("the id of a key must be 1 to 32 letters, digits, dots, dashes or underscores");
    }
    const bytes = secretBytes(id, secret);
    const known = this.#masters.get(id);
    if (known !== undefined) {
      if (known.secret.equals(bytes)) return known.own;
      throw new ConfigError(`two keys of the ring are called "${id}": an id belongs to one secret for ever`);
    }
    const own = sealingKey(id, Buffer.alloc(0), derived(bytes, Buffer.alloc(0), "latchkey"));
    this.#masters.set(id, { secret: bytes, own });
    return own;
  }
}

/**
 * The keys that stored answers, requests, results and messages are sealed with: the first one seals, all of them open.
 *
 * @example
 * ```ts
 * createLatchkey({ store, tenant, encryption: keyRing([{ id: "2026-11", secret: process.env.LATCHKEY_SECRET }]) });
 * ```
 */
export function keyRing(keys: readonly RingKey[], options: KeyRingOptions = {}): KeyRing {
  return new KeyRing(keys, options);
}

interface Master {
  readonly secret: Buffer;
  /** Derived as well: a master secret is used for nothing but to derive keys. */
  readonly own: SealingKey;
}

const secretBytesLength = 32;

/** Also said where a secret for hashing is missing. */
export const howToMakeOne =
  "a secret is 32 random bytes, as text for example from `openssl rand -hex 32`, and is kept outside of the database";

/** The bytes of a secret, however it was written down. */
export function secretBytes(name: string, secret: unknown): Buffer {
  const bytes = decoded(secret);
  if (bytes?.byteLength === secretBytesLength) return bytes;
  throw new ConfigError(`the secret "${name}" cannot be used: ${howToMakeOne}`);
}

function decoded(secret: unknown): Buffer | undefined {
  if (secret instanceof Uint8Array) return Buffer.from(secret);
  if (typeof secret !== "string") return undefined;
  if (/^[\da-f]{64}$/i.test(secret)) return Buffer.from(secret, "hex");
  return /^[\w+/-]{43}=?$/.test(secret) ? Buffer.from(secret, "base64url") : undefined;
}

function derived(secret: Buffer, salt: Uint8Array, info: string): KeyObject {
  return createSecretKey(Buffer.from(hkdfSync("sha256", secret, salt, info, 32)));
}
