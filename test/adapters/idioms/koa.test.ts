import { createServer } from "node:http";
import Koa, { type Context, type Next } from "koa";
import { describe, expect } from "vitest";
import { idempotent } from "../../../src/adapters/koa.ts";
import { deferred } from "../../support/deferred.ts";
import { type Application, empty, listening } from "../application.ts";
import { expectProblem, expectReplay } from "../assertions.ts";
import { custom, itServes } from "../custom.ts";
import { until } from "../harness.ts";

function serving(build: (app: Koa, application: Application) => void) {
  return custom("koa", async (application) => {
    const app = new Koa();
    app.silent = true;
    build(app, application);
    const callback = app.callback();
    return listening(createServer((req, res) => void callback(req, res)));
  });
}

describe("koa", () => {
  itServes(
    "Koa's own error page is an answer like any other",
    serving((app, { latchkey }) => {
      app.use(idempotent(latchkey));
      app.use((ctx) => ctx.throw(402, "the card was declined"));
    }),
    {},
    async (site) => {
      const first = await site.send();
      expect(first).toMatchObject({ status: 402, text: "the card was declined" });
      expectReplay(first, await site.send());
    },
  );

  itServes(
    "what middleware above Latchkey does to the answer is part of it",
    serving((app, { latchkey }) => {
      app.use(async (ctx: Context, next: Next) => {
        ctx.vary("Origin");
        await next();
        if (typeof ctx.body === "object" && !Buffer.isBuffer(ctx.body)) ctx.body = { wrapped: ctx.body };
      });
      app.use(idempotent(latchkey));
      app.use((ctx) => {
        ctx.vary("Accept");
        ctx.body = { charged: 10 };
      });
    }),
    {},
    async (site) => {
      const first = await site.send();
      expect(first.text).toBe('{"wrapped":{"charged":10}}');
      expect(first.headers.vary).toBe("Origin, Accept");
      expectReplay(first, await site.send());
    },
  );

  const giveUp = deferred();
  const finish = deferred();
  itServes(
    "a middleware that gives up on a handler does not let a retry run beside it",
    serving((app, { latchkey, routes }) => {
      let patience = 0;
      app.use(async (ctx, next) => {
        patience += 1;
        const done = next().then(() => true);
        const isDone = patience > 1 ? await done : await Promise.race([done, giveUp.then(() => false)]);
        if (!isDone) {
          ctx.status = 503;
          ctx.body = "too slow for me";
        }
      });
      app.use(idempotent(latchkey));
      app.use(async (ctx) => {
        routes["/charges"]?.({} as never);
        await finish;
        ctx.body = { charged: 10 };
      });
    }),
    { routes: { "/charges": () => empty(200) } },
    async (site) => {
      const first = site.send();
      await until("the handler to run", () => site.executions === 1);
      giveUp.resolve();
      expect(await first).toMatchObject({ status: 503, text: "too slow for me" });
      expectProblem(await site.send(), 409, "outcome-unknown");
      finish.resolve();
      expectProblem(await site.send(), 409, "outcome-unknown");
      expect(site.executions).toBe(1);
    },
  );

  itServes(
    "below a mount point the whole path counts",
    serving((app, { latchkey }) => {
      const protect = idempotent(latchkey);
      app.use((ctx, next) => {
        // What koa-mount does: the path below the mount point stands where the whole one did.
        ctx.path = ctx.path.replace(/^\/v[12]/, "");
        return protect(ctx as never, next);
      });
      app.use((ctx) => {
        ctx.body = { at: ctx.originalUrl };
      });
    }),
    {},
    async (site) => {
      const first = await site.send({ path: "/v1/charges" });
      expect(first.text).toBe('{"at":"/v1/charges"}');
      expectProblem(await site.send({ path: "/v2/charges" }), 422, "key-reused");
      expectReplay(first, await site.send({ path: "/v1/charges" }));
    },
  );

  itServes(
    "a raw body that a parser has kept decides, not what it parsed",
    serving((app, { latchkey }) => {
      app.use(async (ctx, next) => {
        const chunks: Buffer[] = [];
        for await (const chunk of ctx.req) chunks.push(chunk as Buffer);
        const rawBody = Buffer.concat(chunks).toString();
        Object.assign(ctx.request, { rawBody, body: JSON.parse(rawBody) });
        await next();
      });
      app.use(idempotent(latchkey));
      app.use((ctx) => {
        ctx.body = "done";
      });
    }),
    {},
    async (site) => {
      const headers = { "content-type": "application/json" };
      const doubled = await site.send({ headers, body: '{"amount":1,"amount":2}' });
      expectProblem(doubled, 400, "body-ambiguous");
      expect((await site.send()).text).toBe("done");
    },
  );
});
