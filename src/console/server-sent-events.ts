/** One message of a `text/event-stream`. */
export interface StreamMessage {
  readonly event: string;
  readonly data: string;
}

const silenceMsMax = 45_000; // Three heartbeats of the admin API.
const messageCharactersMax = 1024 * 1024; // A stream that never ends a message is not one of ours.

/** The messages of a stream, until it ends. Comments, ids and retry times are not for us. */
export async function* messages(stream: ReadableStream<Uint8Array>): AsyncGenerator<StreamMessage> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let watchdog: ReturnType<typeof setTimeout> | undefined;
  try {
    for (;;) {
      // A connection whose other end has vanished never ends by itself.
      watchdog = setTimeout(() => void reader.cancel().catch(() => undefined), silenceMsMax);
      const { done, value } = await reader.read();
      clearTimeout(watchdog);
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      const blocks = rest.split(/\r?\n\r?\n/);
      rest = blocks.pop() ?? "";
      if (rest.length > messageCharactersMax)
        throw new Error("The stream of events has no end of a message.");
      for (const block of blocks) {
        const message = messageOf(block);
        if (message !== undefined) yield message;
      }
    }
  } finally {
    clearTimeout(watchdog);
    await reader.cancel().catch(() => undefined);
  }
}

function messageOf(block: string): StreamMessage | undefined {
  let event = "message";
  const data: string[] = [];
  for (const line of block.split(/\r?\n/)) {
    const [, name, value] = /^([^:]+): ?(.*)$/.exec(line) ?? [];
    if (name === "event" && value !== undefined) event = value;
    if (name === "data" && value !== undefined) data.push(value);
  }
  return data.length === 0 ? undefined : { event, data: data.join("\n") };
}
