import { useRef, useState } from "preact/hooks";
import type { ScenarioId } from "../scenarios.ts";
import type { PaymentSummary } from "../trace.ts";
import { newKey, type Outcome, type Purchase, press } from "./client.ts";

/** What the customer has chosen before the button is pressed. */
export interface Choice {
  readonly scenario: ScenarioId;
  readonly isProtected: boolean;
  readonly amount: number;
}

/** What the customer's app shows. */
export interface AppScreen {
  readonly order: string | undefined;
  readonly taps: number;
  /** How many presses still wait for an answer. */
  readonly open: number;
  readonly latest: { readonly kind: "trying"; readonly attempt: number } | Outcome | undefined;
  readonly trouble: string | undefined;
}

const idle: AppScreen = { order: undefined, taps: 0, open: 0, latest: undefined, trouble: undefined };
const manyTaps = 50;
const otherAmount = 500; // What the second request of `key-reused` is dearer by.

/**
 * The purchase at hand. It is one and the same, with one key, until another one is begun: whoever presses Pay twice does
 * not want two.
 */
export function usePurchase(): {
  readonly screen: AppScreen;
  pay(choice: Choice): void;
  /** Leaves this purchase; the next press begins another. */
  leave(): void;
} {
  const [screen, setScreen] = useState(idle);
  const current = useRef<Underway | undefined>(undefined);

  function leave(): void {
    current.current?.leaving.abort();
    current.current = undefined;
    setScreen(idle);
  }

  function pay(choice: Choice): void {
    const at = current.current ?? { purchase: begin(choice), leaving: new AbortController(), taps: 0 };
    current.current = at;
    const isFirst = at.taps === 0;
    const { signal } = at.leaving;
    const update = (change: (before: AppScreen) => AppScreen) => {
      if (!signal.aborted) setScreen(change);
    };

    async function tap(changed: Partial<Purchase> = {}): Promise<void> {
      at.taps += 1;
      const number = at.taps;
      update((before) => ({ ...before, taps: number, open: before.open + 1, trouble: undefined }));
      try {
        const purchase = await at.purchase;
        update((before) => ({ ...before, order: purchase.order }));
        const onTry = (attempt: number) =>
          update((before) => ({ ...before, latest: { kind: "trying", attempt } }));
        const latest = await press({ ...purchase, ...changed }, { tap: number, signal, onTry });
        update((before) => ({ ...before, latest }));
      } catch (error) {
        update((before) => ({ ...before, trouble: error instanceof Error ? error.message : String(error) }));
      } finally {
        update((before) => ({ ...before, open: before.open - 1 }));
      }
    }

    async function act(): Promise<void> {
      if (isFirst && choice.scenario === "fifty-taps") {
        await Promise.all(Array.from({ length: manyTaps }, () => tap()));
      } else {
        await tap();
        if (isFirst && choice.scenario === "key-reused" && !signal.aborted) {
          await tap({ amount: choice.amount + otherAmount });
        }
      }
    }
    void act();
  }

  return { screen, pay, leave };
}

interface Underway {
  readonly purchase: Promise<Purchase>;
  readonly leaving: AbortController;
  taps: number;
}

async function begin(choice: Choice): Promise<Purchase> {
  const response = await fetch("/api/payments", { method: "POST", body: JSON.stringify(choice) });
  if (!response.ok) throw new Error(((await response.json()) as { error: string }).error);
  const { order } = (await response.json()) as PaymentSummary;
  return { order, key: newKey(), isProtected: choice.isProtected, amount: choice.amount };
}
