import type { AuditQuery } from "../core/audit.ts";
import { ConfigError } from "../core/errors.ts";
import { escapedTenantOf } from "../core/scope.ts";
import type { ResolveAnswer } from "../core/store.ts";
import type { Latchkey } from "../latchkey.ts";
import type { Busted } from "../operation/busting.ts";
import type { ListRequest } from "../operation/looking.ts";
import type { RequestName } from "../operation/request-name.ts";
import { type ActivityQuery, ActivityReader } from "./activity/reader.ts";
import { cursorOf, idIn } from "./cursor.ts";
import { type Responses, recordDetailView, recordView, shownText } from "./record-view.ts";
import type {
  ActivityView,
  AuditPageView,
  BustBody,
  DeadLetterPageView,
  RecordDetailView,
  RecordPageView,
  RequeueBody,
  ResolveBody,
  StatsView,
} from "./views.ts";

export interface AdministrationOptions {
  /**
   * Whether answers, results of phases and payloads of messages are shown; `"shown"` if left out, to a caller that has
   * the keys itself.
   */
  readonly responses?: Responses | undefined;
}

export interface RecordsQuery extends Omit<ListRequest, "after" | "tenantScope"> {
  /** As the application names it, or as a list shows it. */
  readonly tenant?: string | undefined;
  /** For the next page: `next` of this one. */
  readonly cursor?: string | undefined;
}

export interface PageQuery {
  readonly limit?: number | undefined;
  readonly cursor?: string | undefined;
}

export interface AuditPageQuery extends PageQuery {
  readonly scope?: string | undefined;
  readonly key?: string | undefined;
}

/** What became of an operator's word on an unknown outcome. */
export type Resolved = ResolveAnswer | { readonly kind: "still-unknown" };

/**
 * What an operator sees and does, over any store: the admin API over HTTP, and the command line without it. Who may do it
 * is for the caller to know.
 */
export class Administration {
  readonly #latchkey: Latchkey;
  readonly #responses: Responses;
  readonly #reader: ActivityReader;

  constructor(latchkey: Latchkey, options: AdministrationOptions = {}) {
    const { responses = "shown" } = options;
    if (responses !== "shown" && responses !== "hidden") {
      throw new ConfigError(`responses is "${responses}" and must be "shown" or "hidden"`);
    }
    this.#latchkey = latchkey;
    this.#responses = responses;
    this.#reader = new ActivityReader(latchkey);
  }

  async records(query: RecordsQuery = {}): Promise<RecordPageView> {
    const { cursor, tenant, limit = rowsDefault, ...asked } = query;
    const tenantScope = tenant === undefined ? undefined : escapedTenantOf(tenant);
    const page = await this.#latchkey.list({ ...asked, limit, tenantScope, after: cursor });
    return {
      records: page.records.map(recordView),
      next: page.next ?? null,
      order: this.#latchkey.store.capabilities.listing,
      now: page.now,
    };
  }

  async record(of: RequestName): Promise<RecordDetailView | undefined> {
    const { record, now } = await this.#latchkey.inspect(of);
    if (record === undefined) return undefined;
    const { scope, key } = record;
    const [audit, duplicates] = await Promise.all([
      this.#latchkey.audit({ scope, key, limit: timelineEntriesMax }),
      // Somebody may have to settle it, whether or not it is known how often it came. The engine has told of the failure.
      this.#reader.duplicates({ scope, key }).catch(() => null),
    ]);
    return recordDetailView(record, { audit, duplicates, now, responses: this.#responses });
  }

  async stats(): Promise<StatsView> {
    const { engine, store } = this.#latchkey;
    const [running, unknown, outbox, processes] = await Promise.all([
      this.#running(),
      engine.ask("counts", () => store.unknownCounts()),
      store.outbox === undefined ? null : this.#latchkey.outboxCounts(),
      this.#reader.processes(),
    ]);
    const { breaker } = this.#latchkey.health();
    return {
      now: running.now,
      store: { name: store.name, breaker },
      running: running.count,
      unknown,
      outbox,
      processes,
    };
  }

  activity(query: ActivityQuery): Promise<ActivityView> {
    return this.#reader.activity(query);
  }

  async deadLetters({ limit = rowsDefault, cursor }: PageQuery = {}): Promise<DeadLetterPageView> {
    if (this.#latchkey.store.outbox === undefined) return { deadLetters: [], next: null };
    const after = cursor === undefined ? {} : { after: idIn(cursor) };
    const messages = await this.#latchkey.deadLetters({ limit, ...after });
    return {
      deadLetters: messages.map(({ payload, ...message }) => ({
        id: message.id,
        topic: message.topic,
        key: message.key,
        scope: message.scope,
        partition: message.partition,
        correlationId: message.correlationId,
        attempts: message.attempts,
        createdAt: message.createdAt,
        diedAt: message.diedAt,
        error: message.error,
        payload: shownText(payload, this.#responses),
      })),
      next: nextOf(messages, limit),
    };
  }

  async audit({ limit = rowsDefault, cursor, scope, key }: AuditPageQuery = {}): Promise<AuditPageView> {
    const query: AuditQuery = {
      limit,
      ...(scope === undefined ? {} : { scope }),
      ...(key === undefined ? {} : { key }),
      ...(cursor === undefined ? {} : { before: idIn(cursor) }),
    };
    const entries = await this.#latchkey.audit(query);
    return {
      entries: entries.map(({ fence, id, at, scope, key, from, to, by, reason }) => {
        return { id, at, scope, key, attempt: fence, from, to, by, reason };
      }),
      next: nextOf(entries, limit),
    };
  }

  resolve({ scope, key, attempt, verdict }: ResolveBody, by: string): Promise<Resolved> {
    return this.#latchkey.resolve({ of: { scope, key }, attempt, verdict, by });
  }

  bust({ scope, key, attempt, reason }: BustBody, by: string): Promise<Busted> {
    return this.#latchkey.bust({ of: { scope, key }, attempt, reason, by });
  }

  /** How many of them were dead, and wait for their delivery again. */
  async requeue({ ids }: RequeueBody, by: string): Promise<number> {
    if (this.#latchkey.store.outbox === undefined) return 0;
    return this.#latchkey.requeue({ ids, by });
  }

  /** A store that lists in no order may find few on each page. */
  async #running(): Promise<{ readonly count: number; readonly now: number }> {
    let count = 0;
    let after: string | undefined;
    for (let pages = 1; ; pages += 1) {
      const page = await this.#latchkey.list({ state: "in_progress", limit: runningMax, after });
      count += page.records.length;
      after = page.next;
      if (after === undefined || count >= runningMax || pages === runningPagesMax) {
        return { count: Math.min(count, runningMax), now: page.now };
      }
    }
  }
}

function nextOf(rows: readonly { readonly id: string }[], limit: number): string | null {
  const last = rows.at(-1);
  return last === undefined || rows.length < limit ? null : cursorOf(last.id);
}

const rowsDefault = 50;
const timelineEntriesMax = 200;
const runningMax = 1000; // Whoever has more has to look at the metrics.
const runningPagesMax = 5; // Somebody waits for the answer.
