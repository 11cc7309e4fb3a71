import type { RecordId } from "../core/record.ts";
import type { Settlement } from "../core/store.ts";
import type { SealingKey } from "./envelope.ts";

export type Completion = Extract<Settlement, { kind: "complete" }>;

/** A completion that is going to be settled at the end of the turn. */
export class ForeseenCompletion implements Completion {
  readonly kind = "complete";
  readonly response: Completion["response"];
  readonly retentionMs: number;
  readonly id: RecordId;
  readonly key: SealingKey;
  /** As it is stored, once it is sealed. */
  sealed: Completion | undefined;

  constructor(completion: Completion, id: RecordId, key: SealingKey) {
    this.response = completion.response;
    this.retentionMs = completion.retentionMs;
    this.id = id;
    this.key = key;
    this.sealed = undefined;
  }
}

/**
 * Has answers sealed together. Sealing one right after the other takes a fraction of the time that it takes between all the
 * other work of their requests: what it needs is at hand from the second on. So the first one that is settled has all of
 * them sealed, and the others find theirs done; nobody waits for anybody.
 */
export class Foreseen {
  readonly #seal: (foreseen: ForeseenCompletion) => Completion;
  #unsealed: ForeseenCompletion[] = [];

  constructor(seal: (foreseen: ForeseenCompletion) => Completion) {
    this.#seal = seal;
  }

  add(completion: Completion, id: RecordId, key: SealingKey): ForeseenCompletion {
    const foreseen = new ForeseenCompletion(completion, id, key);
    this.#unsealed.push(foreseen);
    return foreseen;
  }

  /** Throws if it cannot be sealed. */
  sealed(foreseen: ForeseenCompletion): Completion {
    if (foreseen.sealed === undefined) this.#sealAll();
    return foreseen.sealed ?? this.#seal(foreseen);
  }

  #sealAll(): void {
    const all = this.#unsealed;
    this.#unsealed = [];
    for (const foreseen of all) {
      try {
        foreseen.sealed = this.#seal(foreseen);
      } catch {
        // It fails alone, when it is settled.
      }
    }
  }
}
