import { StoreError } from "../../core/errors.ts";

/** What the two libraries have in common when it comes to waiting for a connection. */
export interface Connecting {
  isReady(): boolean;
  isClosed(): boolean;
  /** Begins to connect, if nothing has. */
  connect(): void;
  /** Hears once that it is ready. */
  once(listener: () => void): unknown;
  off(listener: () => void): unknown;
}

/** Long enough for a first connection, and well below the time within which the engine wants an answer. */
const patienceMs = 2_000;

/** Resolves when there is a connection, and rejects if there is none in reasonable time: nothing was sent then. */
export function untilReady(connecting: Connecting): Promise<void> {
  if (connecting.isClosed())
    return Promise.reject(new StoreError("the store was closed, and nothing was sent"));
  if (connecting.isReady()) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const isReady = () => {
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(() => {
      connecting.off(isReady);
      reject(new StoreError("there is no connection to Redis, and nothing was sent"));
    }, patienceMs);
    connecting.once(isReady);
    connecting.connect();
  });
}
