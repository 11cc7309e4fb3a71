import type { IncomingMessage, ServerResponse } from "node:http";
import type { Cancel } from "../engine/runtime.ts";
import type { Latchkey } from "../latchkey.ts";
import type { Reporting } from "./activity/activity.ts";
import { LiveClient } from "./live-client.ts";
import { auditViewOf, leftOutView, liveViewOf } from "./live-view.ts";
import { Refusal } from "./refusal.ts";
import type { LiveEventView } from "./views.ts";

/** Events from elsewhere, such as a child process; returns how to stop them. */
export type LiveSource = (listener: (event: LiveEventView) => void) => () => void;

/**
 * What happens, as it happens, to everybody who listens: this process's own events, those of another source, and what the
 * audit trail says that others did. While nobody listens it costs nothing.
 */
export class LiveEvents {
  readonly #latchkey: Latchkey;
  readonly #reporting: Reporting;
  readonly #source: LiveSource | undefined;
  readonly #clients = new Set<LiveClient>();
  #stopListening: (() => void) | undefined;
  #cancelPoll: Cancel | undefined;
  /** Settles when the audit trail was first looked at: whatever is written from then on is told. */
  #firstLook: Promise<void> | undefined;
  #isClosed = false;
  /** The latest entries of the audit trail that were told or were there before anybody listened. */
  #heard: { readonly ids: ReadonlySet<string>; readonly since: number } | undefined;

  constructor(latchkey: Latchkey, reporting: Reporting, source?: LiveSource | undefined) {
    this.#latchkey = latchkey;
    this.#reporting = reporting;
    this.#source = source;
  }

  /** Answers with the stream, until the client goes or this is closed. */
  stream(req: IncomingMessage, res: ServerResponse): void {
    if (this.#clients.size >= clientsMax) {
      throw new Refusal(503, "too-many-listeners", `${clientsMax} listen already: close some of the pages.`);
    }
    res.writeHead(200, { "content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no" });
    if (req.method === "HEAD" || this.#isClosed) {
      res.end();
      return;
    }
    res.flushHeaders();
    const { runtime } = this.#latchkey.engine;
    const client = new LiveClient(res, { runtime, now: this.#reporting.now });
    this.#clients.add(client);
    res.on("close", () => {
      client.end();
      this.#clients.delete(client);
      if (this.#clients.size === 0) this.#deafen();
    });
    this.#listen();
    this.#firstLook?.then(() => client.comment("listening"));
  }

  close(): void {
    this.#isClosed = true;
    for (const client of this.#clients) client.end();
    this.#deafen();
  }

  #tell(event: LiveEventView): void {
    for (const client of this.#clients) client.tell(event);
  }

  #listen(): void {
    if (this.#stopListening !== undefined) return;
    const { id, now } = this.#reporting;
    const stopOwn = this.#latchkey.subscribe((event) => {
      const view = liveViewOf(event, now(), id);
      if (view !== undefined) this.#tell(view);
    });
    const stopOther = this.#source?.((event) => this.#tell(event));
    this.#stopListening = () => {
      stopOwn();
      stopOther?.();
    };
    this.#firstLook = this.#poll();
  }

  #deafen(): void {
    this.#stopListening?.();
    this.#stopListening = undefined;
    this.#cancelPoll?.();
    this.#cancelPoll = undefined;
    this.#heard = undefined;
  }

  /** Nobody is told of entries that a store cannot give now; the next look finds them. */
  async #poll(): Promise<void> {
    const listening = this.#stopListening;
    try {
      const entries = await this.#latchkey.audit({ limit: auditEntriesMax });
      if (this.#stopListening !== listening) return;
      const heard = this.#heard;
      if (heard !== undefined) {
        // Older ones only come into sight because some of those after them were removed.
        const news = entries.filter(({ id, at }) => !heard.ids.has(id) && at >= heard.since).toReversed();
        if (news.length === auditEntriesMax) {
          this.#tell(
            leftOutView(this.#reporting.now(), "more was changed than is told here: see the audit trail"),
          );
        }
        for (const entry of news) this.#tell(auditViewOf(entry));
      }
      const oldest = entries.length === auditEntriesMax ? entries.at(-1)?.at : undefined;
      this.#heard = { ids: new Set(entries.map(({ id }) => id)), since: oldest ?? Number.NEGATIVE_INFINITY };
    } catch {
      // The engine has told of it.
    }
    if (this.#stopListening === undefined || this.#stopListening !== listening) return;
    const { runtime } = this.#latchkey.engine;
    this.#cancelPoll = runtime.setTimer(() => void this.#poll(), pollMs, { background: true });
  }
}

const clientsMax = 100;
const pollMs = 1_000;
const auditEntriesMax = 100; // Half of what anybody is told in a second.
