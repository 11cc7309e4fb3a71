import { isIP } from "node:net";
import { buildConnector } from "undici";

/** Makes the connections to upstream. */
export class Connector {
  readonly connect: buildConnector.connector;
  #isBreaking = false;

  constructor({ hostname, protocol }: URL, timeoutMs: number) {
    const connect = buildConnector({ timeout: timeoutMs });
    // An address is not a name that a certificate is asked for by.
    const servername = protocol === "https:" && isIP(hostname) === 0 ? hostname : "";
    this.connect = (options, callback) =>
      connect({ ...options, servername }, (...[error, socket]) => {
        if (error !== null) {
          callback(error, null);
          return;
        }
        // Before anybody else hears of it.
        socket.on("error", () => this.#break());
        callback(null, socket);
      });
  }

  /**
   * Whether a connection is being reported as broken in this very turn. Undici takes a reset for the end of an answer
   * that has no other, and says that it is complete.
   */
  get isBreaking(): boolean {
    return this.#isBreaking;
  }

  #break(): void {
    this.#isBreaking = true;
    process.nextTick(() => {
      this.#isBreaking = false;
    });
  }
}
