import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type RequestListener } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gunzipSync, gzip } from "node:zlib";
import type { ErrorRequestHandler, Application as ExpressApplication, RequestHandler } from "express";
import { describe, expect } from "vitest";
import { idempotent } from "../../../src/adapters/express.ts";
import { listening } from "../application.ts";
import { expectProblem, expectReplay } from "../assertions.ts";
import { custom, itServes } from "../custom.ts";
import { type Express, express4, express5 } from "../frameworks/express.ts";
import { deferred, type SiteOptions, until } from "../harness.ts";

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

for (const [version, express] of Object.entries({ "express 5": express5, "express 4": express4 })) {
  const serving = (build: (app: ExpressApplication, protect: RequestHandler, express: Express) => void) =>
    custom("express", (application) => {
      const app = express();
      build(app, idempotent(application.latchkey, application.policy), express);
      return listening(createServer(app as RequestListener));
    });
  const plain: SiteOptions = { routes: {} };

  describe(version, () => {
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
      "a handler that calls next after its answer does not spoil it",
      serving((app, protect) => {
        app.use(protect);
        app.post("/charges", (_req, res, next) => {
          res.status(201).json({ charged: 10 });
          next();
        });
        app.post("/late", async (_req, res, next) => {
          res.status(201).json({ charged: 10 });
          res.once("finish", () => next());
        });
      }),
      plain,
      async (site) => {
        for (const sending of [{}, { path: "/late", key: "late" }]) {
          const first = await site.sendKept(sending);
          expect(first).toMatchObject({ status: 201, text: '{"charged":10}' });
          expectReplay(first, await site.sendKept(sending));
        }
      },
    );

    itServes(
      "a handler that answers again when its answer is long gone harms nobody",
      serving((app, protect) => {
        app.use(protect);
        app.post("/charges", (_req, res) => {
          res.once("finish", () => {
            res.status(500).json({ never: "sent" });
            res.writeHead(500);
            res.write("never sent");
            res.end();
          });
          res.status(201).json({ charged: 10 });
        });
      }),
      plain,
      async (site) => {
        const first = await site.sendKept();
        expect(first).toMatchObject({ status: 201, text: '{"charged":10}' });
        expectReplay(first, await site.sendKept());
      },
    );

    itServes(
      "a handler that fails in the middle of its answer gets one error page, and no mixture",
      serving((app, protect) => {
        let runs = 0;
        app.use(protect);
        app.post("/charges", (_req, res) => {
          runs += 1;
          res.set("content-length", "9").write("half of ");
          if (runs === 1) throw new Error("boom");
          res.end("x");
        });
      }),
      plain,
      async (site) => {
        const first = await site.sendKept();
        expect(first.status).toBe(500);
        expect(first.text).toMatch(/^<!DOCTYPE html>.*boom.*<\/html>\n$/s);
        expect(await site.sendKept()).toMatchObject({ status: 200, text: "half of x" });
      },
    );

    itServes(
      "a length that was said for another answer does not break the connection",
      serving((app, protect) => {
        app.use(protect);
        app.post("/charges", (_req, res) => {
          res.set("content-length", "1000").write("a beginning");
          throw new Error("boom");
        });
        app.post("/short", (_req, res) => void res.set("content-length", "2").end("longer"));
        const plainPage: ErrorRequestHandler = (_error, _req, res, _next) =>
          void res.status(402).end("failed");
        app.use(plainPage);
      }),
      plain,
      async (site) => {
        const first = await site.sendKept();
        expect(first).toMatchObject({ status: 402, text: "failed" });
        expectReplay(first, await site.sendKept());
        expect((await site.sendKept({ path: "/short", key: "short" })).text).toBe("longer");
        expect((await site.sendKept({ path: "/short", key: "short" })).text).toBe("longer");
      },
    );

    itServes(
      "a status that does not exist is the handler's error, not ours",
      serving((app, protect) => {
        app.use(protect);
        app.post("/charges", (_req, res) => {
          res.statusCode = 9999;
          res.end();
        });
        app.post("/message", (_req, res) => void res.writeHead(200, "line\nbreak").end());
      }),
      plain,
      async (site) => {
        expect((await site.send()).status).toBe(500);
        expect((await site.send({ path: "/message", key: "another" })).status).toBe(500);
      },
    );

    itServes(
      "a request that a middleware answered meanwhile is not executed, and its retry is",
      serving((app, protect, make) => {
        let impatient = true;
        app.use(
          make.json(),
          (_req, res, next) => {
            if (impatient) res.status(503).end("too slow for me");
            impatient = false;
            next();
          },
          protect,
        );
        app.post("/charges", (_req, res) => void res.status(201).json({ charged: 10 }));
      }),
      plain,
      async (site) => {
        expect(await site.send()).toMatchObject({ status: 503, text: "too slow for me" });
        await site.happened("settled", (event) => event.as === "failed_retryable");
        const retry = await site.send();
        expect(retry).toMatchObject({ status: 201, text: '{"charged":10}' });
        expectReplay(retry, await site.send());
      },
    );

    const go = deferred();
    let ran = false;
    itServes(
      "a file is stored and replayed, although its client is gone before it is sent",
      serving((app, protect) => {
        app.use(protect);
        app.post("/charges", async (_req, res, next) => {
          ran = true;
          await go;
          const folder = await mkdtemp(join(tmpdir(), "latchkey-"));
          await writeFile(join(folder, "receipt.txt"), "x".repeat(200_000));
          res.sendFile(join(folder, "receipt.txt"), (error) => {
            void rm(folder, { recursive: true });
            if (error) next(error);
          });
        });
      }),
      plain,
      async (site) => {
        const exchange = site.open();
        await until("the handler to run", () => ran);
        exchange.abort();
        await site.disconnected();
        go.resolve();
        await site.happened("settled", (event) => event.as === "completed");
        const retry = await site.send();
        expect(retry.body.byteLength).toBe(200_000);
        expect(retry.headers["content-type"]).toMatch(/^text\/plain/);
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
