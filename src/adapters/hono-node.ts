import type { IncomingMessage } from "node:http";
import { readNodeBody } from "../http/node-request.ts";
import type { BodyReading } from "../http/request.ts";
import { whenKnown } from "../http/when-known.ts";

export { lightResponses } from "../http/light-response.ts";

/** What Hono's server for Node makes its request of. */
export type Incoming = IncomingMessage & { rawBody?: Uint8Array };

/** That server takes a body from `rawBody` if it is there, which saves making a second request with it. */
export function readIncoming(incoming: Incoming, bytesMax: number): BodyReading | Promise<BodyReading> {
  return whenKnown(readNodeBody(incoming, bytesMax), (reading) => {
    if (reading.kind === "body" && reading.body.kind === "bytes" && reading.body.bytes.byteLength > 0) {
      const { buffer, byteOffset, byteLength } = reading.body.bytes;
      incoming.rawBody = Buffer.from(buffer, byteOffset, byteLength);
    }
    return reading;
  });
}

/** Lets go of a body that nobody reads. The server would otherwise set three timers to do it after the answer. */
export function discardUnread(incoming: Incoming): void {
  if (incoming.readableFlowing === null && incoming.listenerCount("readable") === 0) incoming.resume();
}
