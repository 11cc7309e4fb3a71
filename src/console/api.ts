import type {
  ActivityView,
  AuditPageView,
  BustBody,
  BustedView,
  DeadLetterPageView,
  RecordDetailView,
  RecordPageView,
  RequeueBody,
  RequeuedView,
  ResolveBody,
  ResolvedView,
  SessionView,
  StatsView,
} from "../admin/views.ts";
import type { RecordId } from "../core/record.ts";
import { clockSaid } from "./clock.ts";
import type { Query } from "./route.ts";

/** The admin API has refused, or could not be reached; the message is a sentence for people. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  /** 0 if nobody answered. */
  readonly status: number;

  constructor(message: string, status: number, options?: ErrorOptions) {
    super(message, options);
    this.status = status;
  }
}

/** The admin API, as one operator sees it. */
export class Api {
  readonly #token: string;
  readonly #onRefusedToken: () => void;

  constructor(token: string, onRefusedToken: () => void) {
    this.#token = token;
    this.#onRefusedToken = onRefusedToken;
  }

  session(signal?: AbortSignal): Promise<SessionView> {
    return this.#get("session", {}, signal);
  }

  stats(signal?: AbortSignal): Promise<StatsView> {
    return this.#get("stats", {}, signal);
  }

  activity(window: string, signal?: AbortSignal): Promise<ActivityView> {
    return this.#get("activity", { window }, signal);
  }

  records(query: Query, signal?: AbortSignal): Promise<RecordPageView> {
    return this.#get("records", query, signal);
  }

  record({ scope, key }: RecordId, signal?: AbortSignal): Promise<RecordDetailView> {
    return this.#get("record", { scope, key }, signal);
  }

  deadLetters(query: Query, signal?: AbortSignal): Promise<DeadLetterPageView> {
    return this.#get("dead-letters", query, signal);
  }

  audit(query: Query, signal?: AbortSignal): Promise<AuditPageView> {
    return this.#get("audit", query, signal);
  }

  resolve(body: ResolveBody): Promise<ResolvedView> {
    return this.#post("record/resolve", body);
  }

  bust(body: BustBody): Promise<BustedView> {
    return this.#post("record/bust", body);
  }

  /** Answers with how many were dead. */
  requeue(body: RequeueBody): Promise<RequeuedView> {
    return this.#post("dead-letters/requeue", body);
  }

  /** An `EventSource` cannot send a token, so the stream is read as any other body. */
  async events(signal: AbortSignal): Promise<ReadableStream<Uint8Array>> {
    const response = await this.#fetch("events", { signal, headers: { accept: "text/event-stream" } });
    if (response.body === null) throw new ApiError("The stream of events is empty.", response.status);
    return response.body;
  }

  #get<T>(path: string, query: Query, signal: AbortSignal | undefined): Promise<T> {
    const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
    const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
    return this.#json(search === "" ? path : `${path}?${search}`, { signal: signal ?? null });
  }

  #post<T>(path: string, body: unknown): Promise<T> {
    const headers = { "content-type": "application/json" };
    return this.#json(path, { method: "POST", headers, body: JSON.stringify(body) });
  }

  async #json<T>(path: string, init: RequestInit): Promise<T> {
    const response = await this.#fetch(path, init);
    const answer = (await response.json()) as T & { readonly now?: unknown };
    if (typeof answer.now === "number") clockSaid(answer.now);
    return answer;
  }

  async #fetch(path: string, init: RequestInit): Promise<Response> {
    const response = await fetch(new URL(`api/${path}`, document.baseURI), {
      ...init,
      headers: { accept: "application/json", ...init.headers, authorization: `Bearer ${this.#token}` },
      credentials: "omit",
      cache: "no-store",
    }).catch((error: unknown) => {
      if (init.signal?.aborted) throw error;
      throw new ApiError("The admin API cannot be reached.", 0, { cause: error });
    });
    if (response.ok) return response;
    if (response.status === 401) this.#onRefusedToken();
    throw new ApiError(await sentenceOf(response), response.status);
  }
}

/** What a problem document says, or at least the status of whatever is not one: a proxy may answer too. */
async function sentenceOf(response: Response): Promise<string> {
  const problem: unknown = await response.json().catch(() => undefined);
  if (typeof problem === "object" && problem !== null) {
    if ("detail" in problem && typeof problem.detail === "string") return problem.detail;
    if ("title" in problem && typeof problem.title === "string") return problem.title;
  }
  return `The admin API answered ${response.status}.`;
}
