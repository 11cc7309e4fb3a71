import type { IncomingMessage } from "node:http";
import { bufferOf } from "../core/bytes.ts";
import { bytesPutBack } from "../http/node-request.ts";

export { lightResponses } from "../http/light-response.ts";
export { readNodeBody as readIncoming } from "../http/node-request.ts";

/** What Hono's server for Node makes its request of. */
export type Incoming = IncomingMessage & { rawBody?: Uint8Array };

/** That server takes a body from `rawBody` if it is there, which saves making a second request with it. */
export function leaveRawBody(incoming: Incoming): void {
  const bytes = bytesPutBack(incoming);
  if (bytes === undefined || bytes.byteLength === 0) return;
  incoming.rawBody = bufferOf(bytes);
}

/** Lets go of a body that nobody reads. The server would otherwise set three timers to do it after the answer. */
export function discardUnread(incoming: Incoming): void {
  if (incoming.readableFlowing === null && incoming.listenerCount("readable") === 0) incoming.resume();
}
