import { StoreError } from "../../core/errors.ts";
import { tenantScopeOf } from "../../core/scope.ts";
import type { ForgetCounts, ForgetOptions } from "../../core/store.ts";
import { entryOf, pageEntries } from "./audit.ts";
import type { RedisPrimary, RedisReply } from "./client.ts";
import { clearExpiryLists } from "./expiry-lists.ts";
import { idOf } from "./names.ts";
import { listOf, numbersOf, type Server } from "./server.ts";
import { askPrimary, layoutOf } from "./topology.ts";

/**
 * Removes what is kept about a tenant. Nothing is listed by tenant, because every request would pay for the list: so all
 * names are gone through, and a call goes on where the one before has ended.
 */
export class Forgetting {
  readonly #server: Server;
  /** What the latest call has left when its limit was reached. */
  #left: Pass | undefined;

  constructor(server: Server) {
    this.#server = server;
  }

  async forget({ tenantScope, limit }: ForgetOptions): Promise<ForgetCounts> {
    if (!(limit >= 1)) return { removed: 0, unsettled: 0 };
    let pass = this.#left?.tenantScope === tenantScope ? this.#left : new Pass(this.#server, tenantScope);
    // Whoever asks at the same time, or after a failure, has a pass of its own.
    this.#left = undefined;
    for (;;) {
      const { removed, isOver } = await pass.goOn(limit);
      if (!isOver) this.#left = pass;
      if (removed > 0) return { removed, unsettled: 0 };
      // Nothing is left only if a whole pass has found nothing.
      if (isOver && pass.removed === 0) return { removed: 0, unsettled: pass.unsettled };
      pass = new Pass(this.#server, tenantScope);
    }
  }
}

/** One walk through everything, in as many steps as its limits demand. */
class Pass {
  readonly tenantScope: string;
  removed = 0;
  readonly #server: Server;
  /** By name: whoever goes through the keys of a server may meet one twice. */
  readonly #unsettled = new Set<string>();
  /** Ends with the pass, and pauses whenever nothing more may be removed. */
  readonly #steps: AsyncGenerator<void, void>;
  #mayRemove = 0;

  constructor(server: Server, tenantScope: string) {
    this.#server = server;
    this.tenantScope = tenantScope;
    this.#steps = this.#walk();
  }

  get unsettled(): number {
    return this.#unsettled.size;
  }

  async goOn(limit: number): Promise<{ readonly removed: number; readonly isOver: boolean }> {
    const before = this.removed;
    this.#mayRemove = limit;
    const { done = false } = await this.#steps.next();
    return { removed: this.removed - before, isOver: done };
  }

  async *#walk(): AsyncGenerator<void, void> {
    const { link, names } = this.#server;
    const layout = await layoutOf(link);
    for (const primary of await link.primaries()) yield* this.#forgetRecords(primary);
    for (const tag of names.tags) yield* this.#forgetAudit(`${tag}@audit`);
    if (this.removed > 0) return;
    await clearExpiryLists(this.#server, (name) => this.#isOwn(name));
    if ((await layoutOf(link)) !== layout) {
      throw new StoreError(
        "a server was restarted or replaced while its keys were gone through, and some may have been missed: ask again",
      );
    }
  }

  async *#forgetRecords(primary: RedisPrimary): AsyncGenerator<void, void> {
    const pattern = this.#server.names.recordPattern;
    let cursor = "0";
    do {
      const scan = ["SCAN", cursor, "MATCH", pattern, "COUNT", String(scannedAtOnce)];
      const [next, found] = listOf(await askPrimary(primary, scan));
      for (const keys of this.#ownKeysIn(listOf(found ?? []).map(String))) {
        while (keys.length > 0) {
          if (this.#mayRemove <= 0) yield;
          await this.#forget(keys.splice(0, Math.min(this.#mayRemove, forgottenAtOnce)));
        }
      }
      cursor = String(next);
    } while (cursor !== "0");
  }

  /** The tenant's, in groups that one script may be called with. */
  #ownKeysIn(found: readonly string[]): Iterable<string[]> {
    const { names, link } = this.#server;
    const groups = new Map<string, Set<string>>();
    for (const key of found) {
      const split = names.splitKey(key);
      if (split === undefined || !this.#isOwn(split.name)) continue;
      const group = link.isCluster ? split.tag : "";
      groups.set(group, (groups.get(group) ?? new Set()).add(split.tag + split.name));
    }
    return [...groups.values()].map((keys) => [...keys]);
  }

  async #forget(keys: readonly string[]): Promise<void> {
    const answers = numbersOf(await this.#server.write("forget", keys, []));
    for (const [nth, answer] of answers.entries()) {
      if (answer === 1) this.#count(1);
      else if (answer > 1) this.#unsettled.add(keys[nth] ?? "");
    }
  }

  async *#forgetAudit(stream: string): AsyncGenerator<void, void> {
    let from = "-";
    for (;;) {
      const read = ["XRANGE", stream, from, "+", "COUNT", String(pageEntries)];
      const page = listOf(await this.#server.send(stream, read));
      const own = page.filter((told) => this.#isOwnScope(entryOf(told, 0).entry.scope)).map(streamIdOf);
      while (own.length > 0) {
        if (this.#mayRemove <= 0) yield;
        const ids = own.splice(0, this.#mayRemove);
        this.#count(Number(await this.#server.send(stream, ["XDEL", stream, ...ids])));
      }
      const last = page.at(-1);
      if (last === undefined || page.length < pageEntries) return;
      from = `(${streamIdOf(last)}`;
    }
  }

  #count(removed: number): void {
    this.removed += removed;
    this.#mayRemove -= removed;
  }

  #isOwn(name: string): boolean {
    return this.#isOwnScope(idOf(name).scope);
  }

  #isOwnScope(scope: string): boolean {
    return tenantScopeOf(scope) === this.tenantScope;
  }
}

/** Nobody else is served meanwhile. */
const scannedAtOnce = 1_000;
const forgottenAtOnce = 200;

function streamIdOf(told: RedisReply): string {
  return String(listOf(told)[0]);
}
