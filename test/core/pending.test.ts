import { describe, expect, it, vi } from "vitest";
import { askedShortly, offerAtOnce, offerPending } from "../../src/core/at-once.ts";
import { isPending, type Listener, type Pending, promised } from "../../src/core/pending.ts";

/** An answer that comes when the test says so. */
class Told<Answer> implements Pending<Answer> {
  listener: Listener<Answer> | undefined;

  tell(listener: Listener<Answer>): void {
    this.listener = listener;
  }
}

describe("promised", () => {
  it("is the answer that somebody is told of later", async () => {
    const answer = new Told<string>();
    const promise = promised(() => answer);
    answer.listener?.answered("done");
    expect(await promise).toBe("done");
  });

  it("is the failure that somebody is told of later", async () => {
    const answer = new Told<string>();
    const promise = promised(() => answer);
    const failure = new Error("the store is down");
    answer.listener?.failed(failure);
    await expect(promise).rejects.toBe(failure);
  });

  it("is what is known at once, or what a promise comes to", async () => {
    expect(await promised(() => "known")).toBe("known");
    expect(await promised(async () => "promised")).toBe("promised");
    await expect(promised(() => Promise.reject(new Error("not today")))).rejects.toThrow("not today");
  });

  it("rejects with what is thrown by asking", async () => {
    const busy = new Error("too much is waiting");
    const promise = promised((): string => {
      throw busy;
    });
    await expect(promise).rejects.toBe(busy);
  });

  it("comes to the first of what is told, and to nothing else afterwards", async () => {
    const answer = new Told<string>();
    const promise = promised(() => answer);
    answer.listener?.answered("first");
    answer.listener?.answered("second");
    answer.listener?.failed(new Error("third"));
    expect(await promise).toBe("first");
  });
});

describe("isPending", () => {
  it("knows an answer that is to be told from one that is there, and from the promise of one", () => {
    expect(isPending(new Told())).toBe(true);
    for (const other of [undefined, null, "told", 0, {}, { tell: "a story" }, Promise.resolve(new Told())]) {
      expect(isPending(other)).toBe(false);
    }
  });
});

describe("askedShortly", () => {
  const store = { secret: 7 };
  const promisedForm = async (factor: number) => factor;

  it("asks in the form without promises, on behalf of the store", () => {
    const answer = new Told<number>();
    const reserve = vi.fn(promisedForm);
    const pending = vi.fn(function (this: typeof store, _factor: number) {
      expect(this).toBe(store);
      return answer;
    });
    offerPending(reserve, pending);
    expect(askedShortly(store, reserve, 3)).toBe(answer);
    expect(pending).toHaveBeenCalledExactlyOnceWith(3);
    expect(reserve).not.toHaveBeenCalled();
  });

  it("asks for an answer at once where that is all there is, and else for the promise", async () => {
    const reserve = async (factor: number) => factor;
    expect(await askedShortly(store, reserve, 3)).toBe(3);
    offerAtOnce(reserve, function (this: typeof store, factor: number) {
      return this.secret * factor;
    });
    expect(askedShortly(store, reserve, 3)).toBe(21);
  });

  it("asks whatever was put in the place of a verb, and not that verb", async () => {
    const reserve = async (factor: number) => factor;
    offerPending(reserve, () => new Told<number>());
    const replaced = async (factor: number) => -factor;
    expect(await askedShortly(store, Object.assign(replaced, reserve), 3)).toBe(-3);
  });

  it("throws what is thrown at once", () => {
    const reserve = async () => "unused";
    offerPending(reserve, () => {
      throw new Error("closed");
    });
    expect(() => askedShortly(store, reserve)).toThrow("closed");
  });
});
