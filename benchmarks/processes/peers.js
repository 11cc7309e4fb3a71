// The peers that can be installed, with their records in memory as Latchkey's are.
import { Idempotency } from "@node-idempotency/core";
import { MemoryStorageAdapter } from "@node-idempotency/storage-adapter-memory";
import { getSharedIdempotencyService, idempotency } from "express-idempotency";

/** As its README says. */
export function expressPeer() {
  return {
    middleware: idempotency(),
    isHit: (/** @type {import("express").Request} */ req) => getSharedIdempotencyService().isHit(req),
  };
}

/**
 * The Express plugin of @node-idempotency is not on npm; this is what its core needs to be told. Like the plugin, it
 * sends the answer without waiting until it is stored.
 *
 * @returns {import("express").RequestHandler}
 */
export function nodeIdempotencyGlue() {
  const core = new Idempotency(new MemoryStorageAdapter());
  return async (req, res, next) => {
    const request = { headers: req.headers, body: req.body, path: req.url, method: req.method };
    const known = await core.onRequest(request);
    if (known !== undefined) {
      res.status(Number(known.additional?.statusCode)).json(known.body);
      return;
    }
    const json = res.json.bind(res);
    res.json = (body) => {
      void core.onResponse(request, { body, additional: { statusCode: res.statusCode } });
      return json(body);
    };
    next();
  };
}
