import { describe, expect, it } from "vitest";
import { HandlerEnd } from "../../src/http/handler-end.ts";

describe("the end of a handler", () => {
  it("is not known where its calls are not told of", () => {
    let times = 0;
    const end = new HandlerEnd(() => {
      times += 1;
    });
    end.ended();
    end.closed();
    expect(times).toBe(0);
  });

  it("leaves a failure to whoever called it, and to nobody if that is nobody", async () => {
    const end = new HandlerEnd(() => {});
    const given = Promise.reject(new Error("declined"));
    const back = end.watch(() => given);
    // Had it only been listened to, the failure of the one that is given back would have been heard of already.
    expect(back).not.toBe(given);
    await expect(back).rejects.toThrow("declined");
  });
});
