import { tenantScopeOf } from "../core/scope.ts";
import type { ForgetCounts, ForgetOptions } from "../core/store.ts";

/** Goes through everything that may be a tenant's, and pauses whenever the pass may not remove anything more. */
export type ForgetWalk = (pass: ForgetPass) => AsyncGenerator<void, void>;

/**
 * Removes what is kept about a tenant where nothing is listed by tenant, because every request would pay for the list:
 * everything is gone through, and a call goes on where the one before has ended.
 */
export class Forgetting {
  readonly #walk: ForgetWalk;
  /** What the latest call has left when its limit was reached. */
  #left: ForgetPass | undefined;

  constructor(walk: ForgetWalk) {
    this.#walk = walk;
  }

  async forget({ tenantScope, limit }: ForgetOptions): Promise<ForgetCounts> {
    if (!(limit >= 1)) return { removed: 0, unsettled: 0 };
    let pass = this.#left?.tenantScope === tenantScope ? this.#left : new ForgetPass(tenantScope, this.#walk);
    // Whoever asks at the same time, or after a failure, has a pass of its own.
    this.#left = undefined;
    for (;;) {
      const { removed, isOver } = await pass.goOn(limit);
      if (!isOver) this.#left = pass;
      if (removed > 0) return { removed, unsettled: 0 };
      // Nothing is left only if a whole pass has found nothing.
      if (isOver && pass.removed === 0) return { removed: 0, unsettled: pass.unsettled };
      pass = new ForgetPass(tenantScope, this.#walk);
    }
  }
}

/** One walk through everything, in as many steps as the limits of the calls demand. */
export class ForgetPass {
  readonly tenantScope: string;
  readonly #steps: AsyncGenerator<void, void>;
  /** By name: one may be met twice. */
  readonly #unsettled = new Set<string>();
  #removed = 0;
  #mayRemove = 0;

  constructor(tenantScope: string, walk: ForgetWalk) {
    this.tenantScope = tenantScope;
    this.#steps = walk(this);
  }

  get removed(): number {
    return this.#removed;
  }

  get unsettled(): number {
    return this.#unsettled.size;
  }

  isOwn(scope: string): boolean {
    return tenantScopeOf(scope) === this.tenantScope;
  }

  countUnsettled(name: string): void {
    this.#unsettled.add(name);
  }

  /** Removes these, some at a time; `remove` answers how many of them it was. */
  async *removeAll<T>(
    items: readonly T[],
    atOnce: number,
    remove: (some: readonly T[]) => Promise<number>,
  ): AsyncGenerator<void, void> {
    const left = [...items];
    while (left.length > 0) {
      if (this.#mayRemove <= 0) yield;
      const removed = await remove(left.splice(0, Math.min(this.#mayRemove, atOnce)));
      this.#removed += removed;
      this.#mayRemove -= removed;
    }
  }

  async goOn(limit: number): Promise<{ readonly removed: number; readonly isOver: boolean }> {
    const before = this.#removed;
    this.#mayRemove = limit;
    const { done = false } = await this.#steps.next();
    return { removed: this.#removed - before, isOver: done };
  }
}
