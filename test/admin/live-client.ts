import type { LiveEventView } from "../../src/admin/admin.ts";
import { ada, atTheEnd } from "./admin-client.ts";

/** Somebody who listens to the live events. */
export interface Listener {
  readonly events: LiveEventView[];
  /** Lines that are no events. */
  readonly comments: string[];
  /** Settles when the server has ended the stream, or cut it. */
  readonly ended: Promise<void>;
  stop(): void;
}

export async function listenTo(url: string): Promise<Listener> {
  const stop = new AbortController();
  atTheEnd(() => stop.abort());
  const headers = { authorization: `Bearer ${ada.token}` };
  const response = await fetch(`${url}/api/events`, { headers, signal: stop.signal });
  if (response.status !== 200 || response.body === null) throw new Error(`events: ${response.status}`);
  const events: LiveEventView[] = [];
  const comments: string[] = [];
  let heard = () => {};
  const listening = new Promise<void>((resolve) => {
    heard = resolve;
  });
  const { body } = response;
  async function read(): Promise<void> {
    let text = "";
    for await (const chunk of body.pipeThrough(new TextDecoderStream())) {
      text += chunk;
      const blocks = text.split("\n\n");
      text = blocks.pop() ?? "";
      for (const block of blocks) {
        if (block.startsWith(":")) {
          comments.push(block.slice(2));
          heard();
        } else {
          const data = /^event: activity\ndata: (.*)$/.exec(block)?.[1];
          if (data === undefined) throw new Error(`not an event: ${block}`);
          events.push(JSON.parse(data) as LiveEventView);
        }
      }
    }
  }
  const ended = read().catch(() => {});
  await Promise.race([listening, ended]);
  return { events, comments, ended, stop: () => stop.abort() };
}
