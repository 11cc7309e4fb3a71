import { createServer, type RequestListener } from "node:http";
import { gunzipSync, gzip } from "node:zlib";
import type { ErrorRequestHandler, RequestHandler } from "express";
import { describe, expect } from "vitest";
import { idempotent } from "../../../src/adapters/express.ts";
import { deferred } from "../../support/deferred.ts";
import { empty, listening } from "../application.ts";
import { expectProblem, expectReplay } from "../assertions.ts";
import { custom, itServes } from "../custom.ts";
import { until } from "../harness.ts";
import { plain, servingWith, versions } from "./express-serving.ts";

/** Compresses what is written to the response after it has all of it, as compressing middleware does in principle. */
const compress: RequestHandler = (_req, res, next) => {
  const { end } = res;
  const parts: Buffer[] = [];
  res.write = ((part: string | Uint8Array) => {
    parts.push(Buffer.from(part as string));
    return true;
  }) as typeof res.write;
  res.end = ((part?: string | Uint8Array | (() => void)) => {
    if (part !== undefined && typeof part !== "function") parts.push(Buffer.from(part as string));
    gzip(Buffer.concat(parts), (_error, compressed) => {
      res.setHeader("content-encoding", "gzip");
      res.setHeader("content-length", compressed.byteLength);
      end.call(res, compressed, "utf8");
    });
    return res;
  }) as typeof res.end;
  next();
};

/** Sets a header at the last moment, as the package `on-headers` does for sessions and timings. */
const atTheLastMoment = (name: string, value: string): RequestHandler => {
  return (_req, res, next) => {
    const { writeHead } = res;
    let fired = false;
    res.writeHead = ((...args: unknown[]) => {
      if (!fired) res.setHeader(name, value);
      fired = true;
      return writeHead.apply(res, args as never);
    }) as typeof res.writeHead;
    next();
  };
};

for (const [version, express] of Object.entries(versions)) {
  const serving = servingWith(express);

  describe(`${version}, middleware around Latchkey`, () => {
    itServes(
      "the first answer and the replay both pass through a compressing middleware above Latchkey",
      serving((app, protect) => {
        app.use(compress, protect);
        app.post("/charges", (_req, res) => void res.status(201).json({ charged: 10 }));
      }),
      plain,
      async (site) => {
        for (const key of ["key-1", "key-2", "key-3"]) {
          const first = await site.send({ key });
          expect(first.headers["content-encoding"]).toBe("gzip");
          expect(gunzipSync(first.body).toString()).toBe('{"charged":10}');
          expectReplay(first, await site.send({ key }));
        }
        expectProblem(
          { ...(await site.send({ json: { amount: 1 } })), ...(await decoded(site)) },
          422,
          "key-reused",
        );
      },
    );

    itServes(
      "what a compressing middleware below Latchkey makes is stored as it is",
      serving((app, protect) => {
        app.use(protect, compress);
        app.post("/charges", (_req, res) => {
          res.status(201);
          res.write("one and ");
          res.end("two");
        });
      }),
      plain,
      async (site) => {
        const first = await site.send();
        expect(gunzipSync(first.body).toString()).toBe("one and two");
        expectReplay(first, await site.send());
      },
    );

    itServes(
      "headers that middleware sets at the last moment are in the first answer, and in the replay where they last",
      serving((app, protect) => {
        app.use(atTheLastMoment("x-above", "set each time"), protect, atTheLastMoment("etag", '"below"'));
        app.post("/charges", (_req, res) => void res.status(201).end("done"));
        app.post("/pieces", (_req, res) => {
          res.write("do");
          res.end("ne");
        });
      }),
      plain,
      async (site) => {
        for (const sending of [{}, { path: "/pieces", key: "pieces" }]) {
          const first = await site.send(sending);
          expect(first.headers).toMatchObject({ etag: '"below"', "x-above": "set each time" });
          expectReplay(first, await site.send(sending));
        }
      },
    );

    itServes(
      "headers of outer middleware stand once in every answer, also where Latchkey answers instead",
      serving((app, protect) => {
        app.use((_req, res, next) => {
          res.set({ "access-control-allow-origin": "https://shop.example", vary: "Origin" });
          next();
        }, protect);
        app.post("/charges", (_req, res) => {
          res.vary("Accept").set("x-handler", "1").status(201).json({});
        });
      }),
      plain,
      async (site) => {
        const cors = { "access-control-allow-origin": "https://shop.example" };
        const first = await site.send();
        expect(first.headers).toMatchObject({ ...cors, vary: "Origin, Accept" });
        expectReplay(first, await site.send(), { lost: ["x-handler"] });
        site.breakStore((verb) => ({ kind: verb === "settle" ? "failBefore" : "none" }));
        const unsent = await site.send({ key: "another" });
        expectProblem(unsent, 503, "store-unavailable");
        expect(unsent.headers).toMatchObject({ ...cors, vary: "Origin" });
        expect(unsent.headers["x-handler"]).toBeUndefined();
      },
    );

    itServes(
      "a request that a middleware answered meanwhile is not executed, and its retry is",
      serving((app, protect, make) => {
        let requests = 0;
        app.use(
          make.json(),
          (_req, res, next) => {
            requests += 1;
            if (requests <= 2) res.status(503).end("too slow for me");
            next();
          },
          protect,
        );
        app.post("/charges", (_req, res) => void res.status(201).json({ charged: 10 }));
      }),
      plain,
      async (site) => {
        // One that Latchkey would refuse, and one that it would let in.
        expect(await site.send({ key: null })).toMatchObject({ status: 503, text: "too slow for me" });
        expect(await site.send()).toMatchObject({ status: 503, text: "too slow for me" });
        await site.happened("settled", (event) => event.as === "failed_retryable");
        const retry = await site.send();
        expect(retry).toMatchObject({ status: 201, text: '{"charged":10}' });
        expectReplay(retry, await site.send());
      },
    );

    for (const status of [503, 408]) {
      const giveUp = deferred();
      const finish = deferred();
      itServes(
        `a middleware that answers ${status} while the handler is at work does not let a retry run beside it`,
        serving((app, protect, make, routes) => {
          let patience = 0;
          app.use(make.json(), (_req, res, next) => {
            patience += 1;
            if (patience === 1) void giveUp.then(() => res.status(status).end("too slow for me"));
            next();
          });
          app.post("/charges", protect, async (_req, res) => {
            routes["/charges"]?.({} as never);
            await finish;
            res.status(201).json({ charged: 10 });
          });
        }),
        { routes: { "/charges": () => empty(201) } },
        async (site) => {
          const first = site.send();
          await until("the handler to run", () => site.executions === 1);
          giveUp.resolve();
          expect(await first).toMatchObject({ status, text: "too slow for me" });
          expectProblem(await site.send(), 409, "outcome-unknown");
          finish.resolve();
          expectProblem(await site.send(), 409, "outcome-unknown");
          expect(site.executions).toBe(1);
        },
      );
    }

    const known = deferred();
    const errors: { code?: string }[] = [];
    itServes(
      "a client that is gone while its tenant is looked up is an error like any other, and reserves nothing",
      custom("express", ({ latchkey }) => {
        const app = express();
        const tenant = async () => {
          await known;
          return "acme";
        };
        app.post("/charges", idempotent(latchkey, { tenant }), (_req, res) => void res.end());
        const collect: ErrorRequestHandler = (error, _req, res, _next) => {
          errors.push(error);
          res.end();
        };
        app.use(collect);
        return listening(createServer(app as RequestListener));
      }),
      plain,
      async (site) => {
        const exchange = site.open({
          headers: { "content-type": "text/plain" },
          chunks: (async function* () {
            yield "the first part";
            await new Promise(() => {});
          })(),
        });
        await until("the request", () => site.received > 100);
        exchange.abort();
        await site.disconnected();
        known.resolve();
        await until("the error", () => errors.length === 1);
        expect(errors[0]?.code).toBe("ECONNABORTED");
        expect(site.store.calls.reserve).toBe(0);
      },
    );

    itServes(
      "below a mount point the whole path counts",
      serving((app, protect, make) => {
        for (const version of ["/v1", "/v2"]) {
          const router = make.Router();
          router.post("/charges", protect, (_req, res) => void res.status(201).json({ version }));
          app.use(version, router);
        }
      }),
      plain,
      async (site) => {
        const first = await site.send({ path: "/v1/charges" });
        expect(first.text).toBe('{"version":"/v1"}');
        expectProblem(await site.send({ path: "/v2/charges" }), 422, "key-reused");
        expectReplay(first, await site.send({ path: "/v1/charges" }));
      },
    );

    itServes(
      "a parser that leaves nothing behind is named as the mistake that it is",
      serving((app, protect) => {
        app.use((req, _res, next) => void req.on("end", next).resume(), protect);
        app.post("/charges", (_req, res) => void res.end());
        const tell: ErrorRequestHandler = (error, _req, res, _next) =>
          void res.status(500).end(error.message);
        app.use(tell);
      }),
      plain,
      async (site) => {
        const answer = await site.send({ headers: { "content-type": "application/json" }, body: "{}" });
        expect(answer).toMatchObject({ status: 500 });
        expect(answer.text).toMatch(/mount idempotent\(latchkey\) before it/);
        expect(site.store.calls.reserve).toBe(0);
      },
    );
  });
}

/** A refusal that came through the compressing middleware, as it was before. */
async function decoded(site: { send(sending: object): Promise<{ body: Buffer }> }) {
  const body = gunzipSync((await site.send({ json: { amount: 1 } })).body);
  return { body, text: body.toString() };
}
