import type { Server } from "node:http";
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { HTTPException } from "hono/http-exception";
import { describe, expect, it } from "vitest";
import { idempotent } from "../../../src/adapters/hono.ts";
import { createLatchkey } from "../../../src/index.ts";
import { memoryStore } from "../../../src/stores/memory/store.ts";
import type { Application } from "../application.ts";
import { expectProblem, expectReplay } from "../assertions.ts";
import { custom, itServes } from "../custom.ts";

function serving(build: (app: Hono, application: Application) => void) {
  return custom("hono", async (application) => {
    const app = new Hono();
    build(app, application);
    return new Promise<Server>((resolve) => {
      const server = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, () =>
        resolve(server as Server),
      );
    });
  });
}

describe("hono", () => {
  itServes(
    "the body can be read in every form, and from the raw request as well",
    serving((app, { latchkey }) => {
      app.use(idempotent(latchkey));
      app.post("/json", async (c) => c.text(JSON.stringify(await c.req.json()) + (await c.req.text())));
      app.post("/raw", async (c) => c.text(await c.req.raw.text()));
      app.post("/clone", async (c) => c.text((await c.req.raw.clone().text()) + (await c.req.text())));
      app.post("/stream", async (c) => {
        let text = "";
        const decoder = new TextDecoder();
        for await (const part of (c.req.raw.body ?? []) as AsyncIterable<Uint8Array>)
          text += decoder.decode(part);
        return c.text(text);
      });
      app.post("/form", async (c) => c.text(String((await c.req.raw.formData()).get("amount"))));
    }),
    {},
    async (site) => {
      const body = '{"amount":10}';
      const form = "amount=10";
      const seen = {
        "/json": body + body,
        "/raw": body,
        "/clone": body + body,
        "/stream": body,
        "/form": "10",
      };
      for (const [path, text] of Object.entries(seen)) {
        const isForm = path === "/form";
        const headers = {
          "content-type": isForm ? "application/x-www-form-urlencoded" : "application/json",
        };
        for (const sending of [{ body: isForm ? form : body }, { chunks: [isForm ? form : body] }]) {
          const key = `${path.slice(1)}-${Object.keys(sending)[0]}`;
          const first = await site.send({ path, key, headers, ...sending });
          expect(first.text).toBe(text);
          expectReplay(first, await site.send({ path, key, headers, ...sending }));
        }
      }
    },
  );

  itServes(
    "a body that was read before Latchkey is found where Hono keeps it",
    serving((app, { latchkey }) => {
      app.use(async (c, next) => {
        if (c.req.path === "/charges") await c.req.json();
        else await c.req.raw.text();
        await next();
      });
      app.use(idempotent(latchkey));
      app.post("/charges", async (c) => c.json(await c.req.json()));
      app.post("/raw", (c) => c.text("never"));
      app.onError((error, c) => c.text(error.message, 500));
    }),
    {},
    async (site) => {
      const first = await site.send();
      expect(first.text).toBe('{"amount":10}');
      expectReplay(first, await site.send());
      expectProblem(await site.send({ json: { amount: 11 } }), 422, "key-reused");
      const lost = await site.send({ path: "/raw", key: "raw" });
      expect(lost.status).toBe(500);
      expect(lost.text).toMatch(/consumed the body of this request before Latchkey saw it/);
    },
  );

  itServes(
    "what middleware above and below sets is in the first answer and in the replay",
    serving((app, { latchkey }) => {
      app.use(async (c, next) => {
        c.header("x-before", "1");
        await next();
        c.header("x-after", "2");
      });
      app.use(idempotent(latchkey, { replayHeaders: ["x-below"] }));
      app.use(async (c, next) => {
        await next();
        c.header("x-below", "3");
      });
      app.post("/charges", (c) => c.json({ charged: 10 }, 201));
    }),
    {},
    async (site) => {
      const first = await site.send();
      expect(first.headers).toMatchObject({ "x-before": "1", "x-after": "2", "x-below": "3" });
      expectReplay(first, await site.send());
    },
  );

  itServes(
    "headers of outer middleware are in every answer, also where Latchkey answers instead",
    serving((app, { latchkey }) => {
      app.use(async (c, next) => {
        // The way of Hono's own middleware for cross-origin requests.
        c.res.headers.set("access-control-allow-origin", "https://shop.example");
        c.header("vary", "Origin");
        c.header("x-set", "before");
        await next();
      });
      app.post("/charges", idempotent(latchkey), (c) => {
        c.header("vary", "Accept", { append: true });
        return c.json({}, 201, { "x-handler": "1" });
      });
    }),
    {},
    async (site) => {
      const outer = { "access-control-allow-origin": "https://shop.example", "x-set": "before" };
      const first = await site.send();
      expect(first.headers).toMatchObject({ ...outer, vary: "Origin, Accept" });
      expectReplay(first, await site.send(), { lost: ["x-handler"] });
      expect((await site.send({ json: { amount: 1 } })).headers).toMatchObject(outer);
      site.breakStore((verb) => ({ kind: verb === "settle" ? "failBefore" : "none" }));
      const unsent = await site.send({ key: "another" });
      expectProblem(unsent, 503, "store-unavailable");
      expect(unsent.headers).toMatchObject({ ...outer, vary: "Origin" });
      expect(unsent.headers["x-handler"]).toBeUndefined();
    },
  );

  itServes(
    "an HTTPException with a response of its own is replayed as that response",
    serving((app, { latchkey }) => {
      app.post("/charges", idempotent(latchkey), () => {
        const res = new Response('{"declined":true}', {
          status: 402,
          headers: { "content-type": "application/json" },
        });
        throw new HTTPException(402, { res });
      });
    }),
    {},
    async (site) => {
      const first = await site.send();
      expect(first).toMatchObject({ status: 402, text: '{"declined":true}' });
      expectReplay(first, await site.send());
    },
  );

  it("an error that nobody can render leaves the key free", async () => {
    const latchkey = createLatchkey({ store: memoryStore(), tenant: "single" });
    let failing = true;
    const app = new Hono();
    app.post("/not-an-error", idempotent(latchkey), (c) => {
      if (failing) throw "a string is not an error";
      return c.text("done");
    });
    app.post("/broken-page", idempotent(latchkey), (c) => {
      if (failing) throw new Error("boom");
      return c.text("done");
    });
    app.onError(() => {
      throw new Error("the error page is broken, too");
    });
    for (const path of ["/not-an-error", "/broken-page"]) {
      failing = true;
      const request = () =>
        app.request(path, { method: "POST", headers: { "idempotency-key": path.slice(1) } });
      await expect(request()).rejects.toBeDefined();
      failing = false;
      expect(await (await request()).text()).toBe("done");
    }
    await latchkey.close();
  });

  itServes(
    "below another application the whole path counts",
    serving((app, { latchkey }) => {
      for (const version of ["/v1", "/v2"]) {
        const below = new Hono();
        below.use(idempotent(latchkey));
        below.post("/charges", (c) => c.text(version));
        app.route(version, below);
      }
    }),
    {},
    async (site) => {
      expect((await site.send({ path: "/v1/charges" })).text).toBe("/v1");
      expectProblem(await site.send({ path: "/v2/charges" }), 422, "key-reused");
    },
  );
});
