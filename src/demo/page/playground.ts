import { useEffect, useState } from "preact/hooks";
import type { PaymentView, PlaygroundChange, PlaygroundView } from "../trace.ts";
import { keepOperatorToken } from "./console-link.tsx";

/** Everything that the page shows: what the processes have told, and whether they still do. */
export interface Playground extends PlaygroundView {
  readonly isConnected: boolean;
}

const nothingYet: Playground = {
  payments: [],
  process: { pid: null, restarts: 0 },
  operatorToken: "",
  scope: "",
  isConnected: true,
};

/** Listens for as long as the page is open; the browser connects again by itself, and is told everything anew. */
export function usePlayground(): Playground {
  const [playground, setPlayground] = useState(nothingYet);
  useEffect(() => {
    const source = new EventSource("/api/stream");
    source.addEventListener("playground", (event) => {
      const view = JSON.parse(event.data) as PlaygroundView;
      keepOperatorToken(view.operatorToken);
      setPlayground({ ...view, isConnected: true });
    });
    source.addEventListener("change", (event) => {
      const change = JSON.parse(event.data) as PlaygroundChange;
      setPlayground((before) => changed(before, change));
    });
    source.addEventListener("error", () => setPlayground((before) => ({ ...before, isConnected: false })));
    return () => source.close();
  }, []);
  return playground;
}

function changed(before: Playground, change: PlaygroundChange): Playground {
  switch (change.kind) {
    case "reset":
      return { ...before, payments: [] };
    case "process":
      return { ...before, process: change.process };
    case "payment": {
      const { payment, entry } = change;
      const known = before.payments.find(({ order }) => order === payment.order);
      const entries = [...(known?.entries ?? []), ...(entry === null ? [] : [entry])];
      const others = before.payments.filter(({ order }) => order !== payment.order);
      const all: PaymentView[] = [...others, { ...payment, entries }];
      all.sort((one, other) => Number(one.order) - Number(other.order));
      return { ...before, payments: all.slice(-paymentsMax) };
    }
    default:
      return change satisfies never;
  }
}

const paymentsMax = 200; // The server forgets as well; this page may have been open for longer than it remembers.
