import { Socket } from "node:net";
import type { Duplex } from "node:stream";

/** Joined connections: whatever comes from one side goes to the other, until both have ended. */
export class Tunnels {
  readonly #open = new Set<() => void>();
  #isOver = false;
  #whenEmpty: (() => void) | undefined;

  /** Resolves once none is left. */
  empty(): Promise<void> {
    if (this.#open.size === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#whenEmpty = resolve;
    });
  }

  join(client: Duplex, upstream: Duplex): void {
    const end = () => {
      client.end();
      upstream.end();
      closeSoon(client, upstream);
    };
    this.#open.add(end);
    let left = 2;
    const closed = () => {
      left -= 1;
      if (left > 0) return;
      this.#open.delete(end);
      if (this.#open.size === 0) this.#whenEmpty?.();
    };
    oneWay(client, upstream, closed);
    oneWay(upstream, client, closed);
    if (this.#isOver) end();
  }

  /** Tells both sides of each that it is over, and does not wait for them for long; those who come later are told at once. */
  end(): void {
    this.#isOver = true;
    for (const end of this.#open) end();
  }
}

function oneWay(from: Duplex, to: Duplex, closed: () => void): void {
  const socket = from as Socket;
  // What a server limits for requests is not meant for these, which may be silent for hours.
  socket.setTimeout?.(0);
  // A peer that is gone without a word is found by the operating system.
  socket.setKeepAlive?.(true, keepAliveMs);
  socket.setNoDelay?.(true);
  from.pipe(to);
  from.on("error", () => from.destroy());
  from.on("end", () => closeSoon(from, to));
  from.on("close", () => {
    // Broken off on one side is broken off on the other: nobody may take it for an orderly end.
    if (!from.readableEnded) reset(to);
    closed();
  });
}

/** A side that ended has said its last word; the other one has this long to say its own. */
function closeSoon(one: Duplex, other: Duplex): void {
  setTimeout(() => {
    reset(one);
    reset(other);
  }, halfOpenMs).unref();
}

function reset(socket: Duplex): void {
  if (socket.destroyed) return;
  if (socket instanceof Socket) socket.resetAndDestroy();
  else socket.destroy();
}

const keepAliveMs = 60_000;
const halfOpenMs = 5000;
