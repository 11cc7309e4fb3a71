import { useEffect, useRef, useState } from "preact/hooks";
import type { LiveEventView } from "../admin/views.ts";
import type { Api } from "./api.ts";
import { messages } from "./server-sent-events.ts";

export interface LiveLine {
  /** Counts up, so that a list knows its lines again. */
  readonly id: number;
  readonly event: LiveEventView;
}

export interface Live {
  readonly lines: readonly LiveLine[];
  readonly connection: "connecting" | "connected" | "lost";
  readonly isPaused: boolean;
  /** What has come since the list was paused. */
  readonly missed: number;
  readonly setPaused: (isPaused: boolean) => void;
}

const linesMax = 200; // More than anybody reads, and little enough to draw at once.
const drawEveryMs = 200; // A busy service tells of hundreds each second; eyes take five.
const reconnectMs = { first: 500, max: 10_000 };

/** The latest events, as they happen. A connection that ends is made again, more and more slowly. */
export function useLive(api: Api): Live {
  const [lines, setLines] = useState<readonly LiveLine[]>([]);
  const [connection, setConnection] = useState<Live["connection"]>("connecting");
  const [isPaused, setIsPaused] = useState(false);
  const [missed, setMissed] = useState(0);
  const paused = useRef(false);

  useEffect(() => {
    const ending = new AbortController();
    let fresh: LiveLine[] = [];
    let missedCount = 0;
    let nextId = 0;
    const heard = (event: LiveEventView) => {
      if (paused.current) {
        missedCount += 1;
        return;
      }
      missedCount = 0;
      fresh.push({ id: nextId++, event });
      if (fresh.length > linesMax) fresh.shift();
    };
    const drawing = setInterval(() => {
      setMissed(missedCount);
      if (fresh.length === 0) return;
      const latest = fresh.reverse();
      fresh = [];
      setLines((before) => [...latest, ...before].slice(0, linesMax));
    }, drawEveryMs);
    void listen(api, ending.signal, heard, setConnection);
    return () => {
      ending.abort();
      clearInterval(drawing);
    };
  }, [api]);

  const setPaused = (next: boolean) => {
    paused.current = next;
    setIsPaused(next);
  };
  return { lines, connection, isPaused, missed: isPaused ? missed : 0, setPaused };
}

async function listen(
  api: Api,
  signal: AbortSignal,
  heard: (event: LiveEventView) => void,
  setConnection: (connection: Live["connection"]) => void,
): Promise<void> {
  let delayMs = reconnectMs.first;
  while (!signal.aborted) {
    try {
      const stream = await api.events(signal);
      setConnection("connected");
      delayMs = reconnectMs.first;
      for await (const { event, data } of messages(stream)) {
        if (event === "activity") heard(JSON.parse(data) as LiveEventView);
      }
    } catch {
      // Why it ended does not matter: a token that is refused has signed the operator out already.
    }
    if (signal.aborted) return;
    setConnection("lost");
    await new Promise((resolve) => setTimeout(resolve, delayMs));
    delayMs = Math.min(delayMs * 2, reconnectMs.max);
  }
}
