import { ConfigError } from "../../core/errors.ts";

export interface RedisStoreOptions {
  /** What all keys begin with, behind the client's own `keyPrefix`: "latchkey" unless said otherwise. */
  readonly prefix?: string;
  /**
   * Into how many parts the records are divided, each of which is in one slot of a cluster: 1, in a cluster 64. It must
   * stay the same for as long as there are records; a store that is told another number refuses to work.
   */
  readonly buckets?: number;
  /**
   * Nothing that was written counts before this many replicas have it. If they do not within the time, the call fails,
   * though the primary has it. This makes losing a record in a failover unlikely, not impossible.
   */
  readonly waitForReplicas?: { readonly count: number; readonly timeoutMs: number };
  /** Whether calls that come at the same time travel in one script; true unless said otherwise. */
  readonly groupCommit?: boolean;
  /** Is told, once and in one sentence, how records can be evicted or lost; a process warning unless said otherwise. */
  readonly warn?: (sentence: string) => void;
}

/** The options with their defaults, or a sentence that says what is wrong with them. */
export function checkedOptions(options: RedisStoreOptions, { isCluster }: { readonly isCluster: boolean }) {
  const { prefix = "latchkey", buckets = isCluster ? 64 : 1, waitForReplicas } = options;
  if (!/^[^{}\s]+$/.test(prefix)) {
    throw new ConfigError(
      `prefix is "${prefix}": name it without braces or spaces, and do not leave it empty`,
    );
  }
  if (!Number.isInteger(buckets) || buckets < 1 || buckets > bucketsMax) {
    throw new ConfigError(`buckets is ${buckets}: pass a whole number from 1 to ${bucketsMax}`);
  }
  if (waitForReplicas !== undefined) {
    const { count, timeoutMs } = waitForReplicas;
    if (!Number.isInteger(count) || count < 1) {
      throw new ConfigError(
        `waitForReplicas.count is ${count}: pass the number of replicas to wait for, at least 1`,
      );
    }
    // Without an end it would wait for ever, and everything behind it on the connection.
    if (!Number.isInteger(timeoutMs) || timeoutMs < 1) {
      throw new ConfigError(`waitForReplicas.timeoutMs is ${timeoutMs}: pass whole milliseconds, at least 1`);
    }
  }
  return { prefix, buckets, waitForReplicas };
}

/** Each costs the workers a question in every round. */
const bucketsMax = 1024;
