import { ConfigError, StoreError } from "../../core/errors.ts";
import type { RedisArgument, RedisLink, RedisReply } from "./client.ts";
import { storeError } from "./errors.ts";
import type { Names } from "./names.ts";
import { loadScript, runScript, type Script } from "./script.ts";

export interface ServerOptions {
  readonly link: RedisLink;
  readonly names: Names;
  readonly waitForReplicas: { readonly count: number; readonly timeoutMs: number } | undefined;
  /** Milliseconds since 1970 instead of the server's own time, for tests. */
  readonly clock: (() => number) | undefined;
}

const scripts = {
  reserve: loadScript("reserve"),
  settle: loadScript("settle"),
  hold: loadScript("hold"),
  read: loadScript("read"),
  list: loadScript("list"),
  watch: loadScript("watch"),
  resolve: loadScript("resolve"),
  bust: loadScript("bust"),
  sweep: loadScript("sweep"),
  claimResumable: loadScript("claim_resumable"),
  claimUnknown: loadScript("claim_unknown"),
  reap: loadScript("reap"),
  forget: loadScript("forget"),
  unlist: loadScript("unlist"),
  countUnknown: loadScript("count_unknown"),
  writeNotes: loadScript("write_notes"),
} as const satisfies Record<string, Script>;

/** Runs the scripts, once it is certain that the data is laid out as they expect it. */
export class Server {
  readonly link: RedisLink;
  readonly names: Names;
  readonly #options: ServerOptions;
  /** What every script is told; see the heads of clock.lua and bucket.lua. */
  readonly #settings: readonly string[];
  #started: Promise<void> | undefined;
  #isStarted = false;

  constructor(options: ServerOptions) {
    this.#options = options;
    this.link = options.link;
    this.names = options.names;
    const publish = this.link.isCluster ? "SPUBLISH" : "PUBLISH";
    this.#settings = [String(this.names.tagBytes), publish, String(auditEntriesMax(this.names.tags.length))];
  }

  /** What a script answers that changes nothing that has to reach a replica. */
  ask(
    name: keyof typeof scripts,
    keys: readonly string[],
    args: readonly RedisArgument[],
  ): Promise<RedisReply> {
    if (this.#isStarted) return this.#run(name, keys, args);
    return this.start().then(() => this.#run(name, keys, args));
  }

  /** What a script answers, once its writes are where they are wanted. */
  async write(
    name: keyof typeof scripts,
    keys: readonly string[],
    args: readonly RedisArgument[],
  ): Promise<RedisReply> {
    // A note is in no index.
    const hasIndexes = this.link.isCluster && name !== "writeNotes";
    const reply = await this.ask(name, hasIndexes ? this.#withIndexes(keys) : keys, args);
    const { waitForReplicas } = this.#options;
    if (waitForReplicas !== undefined) await this.#wait(keys[0] ?? "", waitForReplicas);
    return reply;
  }

  /** Sends one command as it is. */
  async send(key: string, args: readonly RedisArgument[]): Promise<RedisReply> {
    return this.link.send(key, args).catch((error: unknown) => {
      throw storeError(error);
    });
  }

  /** Makes sure that everybody who uses these keys divides them into the same buckets. Tried again if it fails. */
  start(): Promise<void> {
    this.#started ??= this.#checkBuckets().then(
      () => {
        this.#isStarted = true;
      },
      (error: unknown) => {
        this.#started = undefined;
        throw error;
      },
    );
    return this.#started;
  }

  #run(
    name: keyof typeof scripts,
    keys: readonly string[],
    args: readonly RedisArgument[],
  ): Promise<RedisReply> {
    const { clock } = this.#options;
    const now = clock === undefined ? "" : String(clock());
    return runScript(this.link, scripts[name], keys, [now, ...this.#settings, ...args]);
  }

  /** All keys that a script may write to, so that a slot that moves is not found out in the middle. */
  #withIndexes(keys: readonly string[]): readonly string[] {
    // In a cluster all are of one bucket, and all tags are of one length.
    const tag = keys[0]?.slice(0, this.names.tags[0]?.length) ?? "";
    return [...keys, ...indexSuffixes.map((suffix) => tag + suffix)];
  }

  async #checkBuckets(): Promise<void> {
    const { bucketsKey, tags } = this.names;
    await this.send(bucketsKey, ["SET", bucketsKey, String(tags.length), "NX"]);
    const found = String(await this.send(bucketsKey, ["GET", bucketsKey]));
    if (found === String(tags.length)) return;
    throw new ConfigError(
      `the records under this prefix are divided into ${found} buckets, and this store was told ${tags.length}: ` +
        `pass { buckets: ${found} }, or another prefix`,
    );
  }

  async #wait(key: string, wait: { readonly count: number; readonly timeoutMs: number }): Promise<void> {
    const reached = await this.link.waitForReplicas(key, wait).catch((error: unknown) => {
      throw storeError(error);
    });
    if (reached >= wait.count) return;
    throw new StoreError(
      `${reached} of ${wait.count} replicas had what was written after ${wait.timeoutMs} ms: it is on the primary, and may be ` +
        "lost with it",
    );
  }
}

/** As scripts/bucket.lua counts them. */
const indexSuffixes = ["@sweep", "@resume", "@unknown", "@windows", "@softs", "@audit"] as const;

/** Entries of the audit trail for each bucket: enough for an operator, and little memory. */
function auditEntriesMax(buckets: number): number {
  return Math.max(1_000, Math.ceil(10_000 / buckets));
}

export function numbersOf(reply: RedisReply): readonly number[] {
  return Array.isArray(reply) ? reply.map(Number) : [];
}

/** A script answers with an array where its head says so. */
export function listOf(reply: RedisReply): readonly RedisReply[] {
  if (!Array.isArray(reply))
    throw new StoreError(`Redis answered ${String(reply)} where a list was expected`);
  return reply;
}

export function bufferOfReply(reply: RedisReply | undefined): Buffer {
  if (Buffer.isBuffer(reply)) return reply;
  throw new StoreError(`Redis answered ${String(reply)} where a text was expected`);
}
