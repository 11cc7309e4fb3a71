import { describe, expect, it } from "vitest";
import { Events } from "../../src/engine/events.ts";

describe("events", () => {
  it("a listener that throws or rejects is warned about, and harms nobody", async () => {
    const warnings: string[] = [];
    const note = (warning: Error) => warnings.push(warning.message);
    process.on("warning", note);
    try {
      const events = new Events();
      const heard: string[] = [];
      events.subscribe(() => {
        throw new Error("a listener threw");
      });
      events.subscribe(async () => {
        throw new Error("a listener rejected");
      });
      const stop = events.subscribe(({ type }) => heard.push(type));
      events.emit({ type: "swept", unknown: 0, retryable: 0, unclaimed: 0 });
      stop();
      events.emit({ type: "swept", unknown: 0, retryable: 0, unclaimed: 0 });
      expect(heard).toEqual(["swept"]);
      while (warnings.length < 4) await new Promise((resolve) => setImmediate(resolve));
      expect(new Set(warnings)).toEqual(new Set(["a listener threw", "a listener rejected"]));
    } finally {
      process.off("warning", note);
    }
  });
});
