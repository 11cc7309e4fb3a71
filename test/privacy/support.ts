import type { Store } from "../../src/core/store.ts";
import { type KeyRing, type KeyRingOptions, keyRing, type RingKey } from "../../src/privacy/key-ring.ts";
import { SealedStore, type SealedStoreOptions } from "../../src/privacy/sealed-store.ts";

export const firstKey: RingKey = { id: "first", secret: Buffer.alloc(32, 1) };
export const secondKey: RingKey = { id: "second", secret: Buffer.alloc(32, 2) };

export function ring(options: KeyRingOptions = {}, keys: readonly RingKey[] = [firstKey]): KeyRing {
  return keyRing(keys, options);
}

/** A store that seals, and fails loudly where something could not be opened beside others. */
export function sealed<Tx>(
  store: Store<Tx>,
  keys: KeyRing = ring(),
  options: Partial<SealedStoreOptions> = {},
): SealedStore<Tx> {
  const onUnreadable = (_: string, error: unknown) => {
    throw error;
  };
  return new SealedStore(store, { ring: keys, now: Date.now, onUnreadable, ...options });
}
