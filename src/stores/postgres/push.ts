import { ConfigError } from "../../core/errors.ts";
import type { Connection, PushSource } from "./database.ts";
import { Listener } from "./listener.ts";
import { type SessionHooks, Sessions } from "./session.ts";

/** What wakes those who wait. */
export interface Push {
  /** Resolves when notifications are heard. */
  ready(): Promise<unknown>;
  /** Whether they are heard now. */
  readonly isHeard: boolean;
  /** Notifications are heard from now on, whether or not anybody waits. Missing where the driver hides interruptions. */
  keepOpen?(): void;
  close(): Promise<void>;
}

/** For `lock: "advisory"`: the session that owns what this process executes. It hears notifications as well. */
export function owningSession(source: PushSource, hooks: SessionHooks): Sessions {
  if (source.kind !== "connection") {
    throw new ConfigError(
      'lock is "advisory", and the package postgres does not tell when a connection of its own has ended: ' +
        'pass a Pool of the package pg, or leave lock at "lease"',
    );
  }
  return new Sessions({ ...hooks, connect: ownConnection(source, 'lock: "advisory"'), owns: true });
}

/** For `listen: true`. */
export function listenerOf(source: PushSource, hooks: SessionHooks): Push {
  switch (source.kind) {
    case "listener":
      return new Listener({ heard: hooks.heard, listen: source.listen });
    case "connection": {
      const connect = ownConnection(source, "listen: true");
      return new Sessions({ ...hooks, connect, owns: false });
    }
    default:
      return source satisfies never;
  }
}

/** One connection is kept for good, and the statements need another. */
function ownConnection(
  source: Extract<PushSource, { kind: "connection" }>,
  option: string,
): () => Promise<Connection> {
  const { connectionsMax } = source;
  if (connectionsMax !== undefined && connectionsMax < 2) {
    throw new ConfigError(
      `${option} keeps one connection of the pool for itself, and this pool has only ${connectionsMax}: raise its max`,
    );
  }
  return source.connect;
}
