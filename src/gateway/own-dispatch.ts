import { randomBytes } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { sameToken } from "../http/token.ts";
import type { DispatchRequest } from "../workers/completer.ts";

const tokenHeader = "latchkey-dispatch";
const tenantHeader = "latchkey-dispatch-tenant";

/** Nobody behind the gateway sees these, whoever sent them. */
export const dispatchHeaderNames = [tokenHeader, tenantHeader] as const;

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
