import { randomBytes } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { sameToken } from "../http/token.ts";
import type { DispatchRequest } from "../workers/completer.ts";

const tokenHeader = "latchkey-dispatch";
const tenantHeader = "latchkey-dispatch-tenant";

/**
 * How this process's completer speaks for a tenant. What identified the caller of an accepted request is not kept, or
 * has expired since; so the gateway believes its own worker, by a secret that lives as long as the process and never
 * leaves it, but for the loopback.
 */
export class OwnDispatch {
  readonly #token = randomBytes(32).toString("hex");

  /** What is sent with a kept request. */
  headersFor({ tenant }: Pick<DispatchRequest, "tenant">): Readonly<Record<string, string>> {
    return { [tokenHeader]: this.#token, [tenantHeader]: encodeURIComponent(tenant) };
  }

  /** The tenant that this process's own worker speaks for; undefined for everybody else. */
  tenantOf(req: IncomingMessage): string | undefined {
    const token = req.headers[tokenHeader];
    const tenant = req.headers[tenantHeader];
    if (typeof token !== "string" || typeof tenant !== "string" || !sameToken(this.#token, token))
      return undefined;
    return decodeURIComponent(tenant);
  }
}

/** Nobody behind the gateway sees these, whoever sent them. */
export function withoutDispatchHeaders(req: IncomingMessage): void {
  if (req.headers[tokenHeader] === undefined && req.headers[tenantHeader] === undefined) return;
  req.rawHeaders = req.rawHeaders.filter((_, index, all) => {
    const name = all[index - (index % 2)]?.toLowerCase();
    return name !== tokenHeader && name !== tenantHeader;
  });
}
