import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import type { ErrorRequestHandler, RequestHandler } from "express";
import { describe, expect } from "vitest";
import { deferred } from "../../support/deferred.ts";
import { expectReplay } from "../assertions.ts";
import { itServes } from "../custom.ts";
import { until } from "../harness.ts";
import { plain, servingWith, versions } from "./express-serving.ts";

for (const [version, express] of Object.entries(versions)) {
  const serving = servingWith(express);

  describe(`${version}, handlers that take liberties`, () => {
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
      "a streaming handler that fails in the middle is broken off, and does not wedge the key",
      serving((app, protect) => {
        let runs = 0;
        app.use(protect);
        app.post("/charges", (_req, res) => {
          runs += 1;
          res.write("half of ");
          if (runs === 1) throw new Error("boom");
          res.end("it all");
        });
      }),
      { ...plain, policy: { streaming: true } },
      async (site) => {
        await expect(site.send()).rejects.toThrow();
        await site.happened("settled", (event) => event.as === "failed_retryable");
        expect(await site.send()).toMatchObject({ status: 200, text: "half of it all" });
        expect((await site.send()).headers["idempotency-replayed"]).toBe("true");
      },
    );

    const part = Buffer.alloc(1024 * 1024, "x");
    const vanishing: Readonly<Record<string, (gone: Promise<void>) => RequestHandler>> = {
      "waits until each part is written": () => async (_req, res) => {
        for (let index = 0; index < 12; index++) await new Promise((resolve) => res.write(part, resolve));
        res.end();
      },
      "pipes the rest": (gone) => async (_req, res) => {
        for (let index = 0; index < 11; index++) res.write(part);
        await gone;
        Readable.from([part]).pipe(res);
      },
    };
    for (const [way, handler] of Object.entries(vanishing)) {
      const gone = deferred();
      itServes(
        `a streaming handler that ${way} goes on when its client, who never read, is gone`,
        serving((app, protect) => {
          app.post("/charges", protect, handler(gone));
        }),
        { ...plain, policy: { streaming: true, responseBytesMax: 20 * part.byteLength } },
        async (site) => {
          const exchange = site.open();
          // Nobody listens to the data, so the buffers between the two fill up.
          (await exchange.response).on("error", () => {});
          exchange.abort();
          await site.disconnected();
          gone.resolve();
          await site.happened("settled", (event) => event.as === "completed");
          expect((await site.send()).body.byteLength).toBe(12 * part.byteLength);
        },
      );
    }

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
  });
}
