import { once } from "node:events";
import {
  context,
  INVALID_SPAN_CONTEXT,
  ProxyTracerProvider,
  type Span,
  type TracerProvider,
  trace,
} from "@opentelemetry/api";
import type { Sampler } from "@opentelemetry/sdk-trace-base";
import { describe, expect, it } from "vitest";
import { createLatchkey } from "../../src/index.ts";
import { instrument } from "../../src/observe/opentelemetry.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { recordSpans } from "./span-recorder.ts";

const open = () => createLatchkey({ store: memoryStore(), tenant: "single" });
const run = (latchkey: ReturnType<typeof open>) =>
  latchkey.run({ tenant: "acme", key: "key-1" }, () => "done");

describe("a tracer", () => {
  it("that throws harms nobody", async () => {
    const broken: Sampler = {
      shouldSample() {
        throw new Error("the sampler is broken");
      },
    };
    const latchkey = open();
    instrument(latchkey, { tracerProvider: recordSpans(broken).provider, meterProvider: false });
    const warning = once(process, "warning");
    expect(await run(latchkey)).toBe("done");
    expect(await run(latchkey)).toBe("done");
    expect(await warning).toEqual([expect.objectContaining({ message: "the sampler is broken" })]);
  });

  it("whose spans throw whatever they are asked fails no request, within such a span or outside", async () => {
    recordSpans();
    const whole = trace.wrapSpanContext(INVALID_SPAN_CONTEXT);
    const broken = new Proxy<Span>(whole, {
      get: () => () => {
        throw new Error("the span is broken");
      },
    });
    const tracerProvider = { getTracer: () => ({ startSpan: () => broken }) } as unknown as TracerProvider;
    const warning = once(process, "warning");
    for (const around of [context.active(), trace.setSpan(context.active(), broken)]) {
      const latchkey = open();
      instrument(latchkey, { tracerProvider, meterProvider: false });
      expect(await context.with(around, () => run(latchkey))).toBe("done");
      expect(await context.with(around, () => run(latchkey))).toBe("done");
      const { record } = await latchkey.store.read({ scope: "acme", key: "key-1" });
      expect(record).toMatchObject({ state: "completed", fence: 1 });
    }
    expect(await warning).toEqual([expect.objectContaining({ message: "the span is broken" })]);
  });

  it("can be set once, and is gone when it was stopped", async () => {
    const { provider, spans } = recordSpans();
    const options = { tracerProvider: provider, meterProvider: false } as const;
    const latchkey = open();
    const stop = instrument(latchkey, options);
    expect(() => instrument(latchkey, options)).toThrow(/traced already/);
    stop();
    await run(latchkey);
    expect(spans()).toEqual([]);
    instrument(latchkey, options)();
  });

  it("that an SDK brings only later draws from then on, and costs no span before", async () => {
    const { provider, spans } = recordSpans();
    const proxy = new ProxyTracerProvider();
    const started: string[] = [];
    const latchkey = open();
    instrument(latchkey, { tracerProvider: proxy, meterProvider: false });
    expect(await run(latchkey)).toBe("done");
    proxy.setDelegate({
      getTracer: (name) => {
        started.push(name);
        return provider.getTracer(name);
      },
    });
    expect(spans()).toEqual([]);
    expect(await run(latchkey)).toBe("done");
    expect(spans().map(({ name }) => name)).toEqual(["idempotency.reserve"]);
    expect(new Set(started)).toEqual(new Set(["latchkey"]));
  });

  it("is not set by options that are refused for something else", async () => {
    const { provider, spans } = recordSpans();
    const latchkey = open();
    expect(() => instrument(latchkey, { tracerProvider: provider, tenantsMax: -1 })).toThrow(
      /tenantsMax is -1/,
    );
    await run(latchkey);
    expect(spans()).toEqual([]);
    instrument(latchkey, { tracerProvider: provider })();
  });
});
