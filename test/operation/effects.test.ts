import { describe, expect, it } from "vitest";
import { currentOperation, LeaseLostError, type Operation, PhaseError } from "../../src/index.ts";
import { runOperation } from "../../src/operation/operation.ts";
import { businesses } from "../support/business.ts";
import { Crash, crash, id, request, retried, useRides } from "./rides.ts";

describe.each(businesses)("the external calls of an operation on %s", (_name, open) => {
  const rides = useRides(open);
  const { run, state, book, start } = rides;

  describe("an external call that must not be repeated", () => {
    const unkeyed = { keyed: false };

    it("and fails makes the outcome unknown, whatever the policy says", async () => {
      await expect(run((op) => op.effect("charge", crash, unkeyed))).rejects.toThrow(Crash);
      expect(await state()).toMatchObject({
        state: "unknown",
        progress: [{ kind: "effect", name: "charge", state: "begun", keyed: false }],
      });
    });

    it("is announced before it is made, so that a crash in it is found to be unknown", async () => {
      const other = start(rides.business.another());
      let reached = () => {};
      const calling = new Promise<void>((resolve) => {
        reached = resolve;
      });
      void rides.latchkey
        .run(request, (op) =>
          op.effect(
            "charge",
            () => {
              rides.latchkey.engine.close();
              reached();
              return new Promise(() => {});
            },
            unkeyed,
          ),
        )
        .catch(() => {});
      await calling;
      await expect(retried(() => other.run(request, () => "again"))).rejects.toMatchObject({
        code: "outcome-unknown",
      });
      await other.close();
    });

    it("and is done can be gone on from", async () => {
      await expect(
        run(async (op) => {
          await op.effect("charge", () => "ch_1", unkeyed);
          crash();
        }),
      ).rejects.toThrow(Crash);
      expect(await state()).toMatchObject({ state: "failed_retryable" });
      expect(await run((op) => op.effect("charge", crash, unkeyed))).toBe("ch_1");
    });

    it("and is known not to have happened may be tried again", async () => {
      const isDefinitelyNotExecuted = (error: unknown) => error instanceof Crash;
      await expect(
        run((op) => op.effect("charge", crash, { ...unkeyed, isDefinitelyNotExecuted })),
      ).rejects.toThrow(Crash);
      expect(await state()).toMatchObject({ state: "failed_retryable" });
      expect(await run((op) => op.effect("charge", () => "ch_2", unkeyed))).toBe("ch_2");
    });

    it("cannot be tried again by a handler that caught its failure", async () => {
      let calls = 0;
      const call = () => {
        calls += 1;
        return crash();
      };
      await expect(
        run(async (op) => {
          await op.effect("charge", call, unkeyed).catch(() => {});
          await op.effect("charge", call, unkeyed);
        }),
      ).rejects.toThrow(PhaseError);
      expect(calls).toBe(1);
      expect(await state()).toMatchObject({ state: "unknown" });
    });

    it("cannot be tried again after another phase either", async () => {
      let calls = 0;
      const call = () => {
        calls += 1;
        return crash();
      };
      await expect(
        run(async (op) => {
          await op.effect("charge", call, unkeyed).catch(() => {});
          await book(op, "logged");
          await op.effect("charge", call, unkeyed);
        }),
      ).rejects.toThrow(/used twice/);
      expect(calls).toBe(1);
    });

    it("is not freed by an answer that says that nothing was processed", async () => {
      const { store } = rides.business;
      const engine = rides.latchkey.engine;
      const policy = rides.latchkey.policy();
      const verdict = await engine.arrive({ ...id, fingerprint: "v1:a", policy });
      if (verdict.kind !== "execute") throw new Error(verdict.kind);
      await runOperation(verdict.execution, () => currentOperation().effect("charge", crash, unkeyed)).catch(
        () => {},
      );
      const response = { kind: "full", status: 429, headers: [], body: new Uint8Array() } as const;
      expect(await verdict.execution.settle({ kind: "answered", response })).toMatchObject({
        kind: "suspended",
      });
      expect((await store.read(id)).record?.state).toBe("unknown");
    });

    it("is not made by a process that slept past its lease, whatever it had announced", async () => {
      let calls = 0;
      const outcome = run(async (op) => {
        rides.latchkey.engine.close(); // No heartbeat any more: as good as asleep.
        const until = Date.now() + 450;
        while (Date.now() < until) await new Promise((resolve) => setTimeout(resolve, 10));
        return op.effect("charge", () => ++calls, unkeyed);
      });
      await expect(outcome).rejects.toThrow(LeaseLostError);
      expect(calls).toBe(0);
    });

    it("may fail and be answered for: a refusal that the handler understood is an outcome", async () => {
      const declined = await run(async (op) => {
        const charge = await op.effect("charge", crash, unkeyed).catch(() => "declined");
        await book(op, "declined");
        return charge;
      });
      expect(declined).toBe("declined");
      expect(await state()).toMatchObject({ state: "completed" });
    });

    it("cannot be noted after it is over, and what was noted in passing does not overwrite what came later", async () => {
      let late: ((id: string) => Promise<void>) | undefined;
      await run(async (op) => {
        await op.effect("first", ({ reference }) => {
          void reference("r_1");
          void reference("r_2");
          late = reference;
          return 1;
        });
        await op.effect("second", () => 2, unkeyed);
        await expect(late?.("r_3")).rejects.toThrow(/"first" is over/);
        return op.recoveryPoint;
      });
      expect(await state()).toMatchObject({
        progress: [
          { name: "first", state: "done", reference: "r_2" },
          { name: "second", state: "done" },
        ],
      });
    });

    it("keeps the provider's own id before it is done", async () => {
      await expect(
        run((op) =>
          op.effect(
            "charge",
            async ({ reference }) => {
              await reference("pi_7");
              crash();
            },
            unkeyed,
          ),
        ),
      ).rejects.toThrow(Crash);
      expect(await state()).toMatchObject({ progress: [{ state: "begun", reference: "pi_7" }] });
    });
  });

  it("the hook of the route says what is known not to have happened", async () => {
    const told: unknown[] = [];
    const knowing = {
      isDefinitelyNotExecuted: (error: unknown) => {
        told.push(error);
        return true;
      },
    };
    await expect(
      rides.latchkey.run({ ...request, policy: knowing }, (op) =>
        op.effect("charge", crash, { keyed: false }),
      ),
    ).rejects.toThrow(Crash);
    expect(told).toHaveLength(1);
    expect(await state()).toMatchObject({ state: "failed_retryable" });
  });

  it("a declined call that the handler recorded goes the same way when it is resumed", async () => {
    let calls = 0;
    const flow = (fail: boolean) => async (op: Operation) => {
      const charge = await op
        .effect("charge", () => {
          calls += 1;
          return crash();
        })
        .catch(() => "declined");
      await book(op, "declined");
      if (fail) crash();
      return charge;
    };
    await expect(run(flow(true))).rejects.toThrow(Crash);
    expect(await run(flow(false))).toBe("declined");
    expect(calls).toBe(1);
    expect(await rides.business.booked()).toEqual(["declined"]);
  });

  it("a call that the handler went on without is not made after all, and fails as it did then", async () => {
    const calls: number[] = [];
    const flow = async (op: Operation) => {
      const isDefinitelyNotExecuted = () => true;
      const charge = () => {
        calls.push(op.attempt);
        if (op.attempt > 1) return "charged after all";
        throw Object.assign(new Error("refused"), { code: "card_declined", status: 402, raw: {} });
      };
      try {
        return await op.effect("charge", charge, { keyed: false, isDefinitelyNotExecuted });
      } catch (error) {
        const { name, code, status, message } = error as Error & { code: string; status: number };
        await book(op, "told_declined");
        if (op.attempt === 1) crash();
        return { name, code, status, message };
      }
    };
    await expect(run(flow)).rejects.toThrow(Crash);
    expect(await run(flow)).toEqual({
      name: "Error",
      code: "card_declined",
      status: 402,
      message: "refused",
    });
    expect(calls).toEqual([1]);
    expect(await rides.business.booked()).toEqual(["told_declined"]);
  });
});
