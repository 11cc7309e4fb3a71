import { setTimeout as sleep } from "node:timers/promises";
import { currentOperation } from "../../src/index.ts";

/** Asks for the operation until there is none any more, and rejects with what it is told then. */
export async function untilItIsOver(): Promise<never> {
  for (;;) {
    currentOperation();
    await sleep(1);
  }
}
