import { useEffect, useRef, useState } from "preact/hooks";
import { Bill, Verdict } from "./bill.tsx";
import { Checkout } from "./checkout.tsx";
import { History } from "./history.tsx";
import { Masthead } from "./masthead.tsx";
import { Picture } from "./picture.tsx";
import { usePlayground } from "./playground.ts";
import { type Choice, usePurchase } from "./purchases.ts";
import { Story } from "./story.tsx";

const firstChoice: Choice = { scenario: "response-lost", isProtected: true, amount: 2_000 };

const narrow = "(max-width: 860px)";

export function App() {
  const playground = usePlayground();
  const [choice, setChoice] = useState(firstChoice);
  const { screen, pay, leave } = usePurchase();
  const [looking, setLooking] = useState<string>();
  const { payments } = playground;
  const order = looking ?? screen.order;
  const payment = payments.find((one) => one.order === order);

  const choose = (change: Partial<Choice>) => {
    leave();
    setLooking(undefined);
    setChoice({ ...choice, ...change });
  };
  const begin = () => {
    leave();
    setLooking(undefined);
  };
  const press = () => {
    setLooking(undefined);
    pay(choice);
  };
  /** The same again, but for Latchkey. */
  const compare = ({ scenario, isProtected, amount }: Choice) => {
    const other = { scenario, amount, isProtected: !isProtected };
    begin();
    setChoice(other);
    pay(other);
  };
  const reset = async () => {
    begin();
    await fetch("/api/reset", { method: "POST" });
  };
  // On a phone the result is below the button.
  const result = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (screen.order !== undefined && matchMedia(narrow).matches) result.current?.scrollIntoView();
  }, [screen.order]);
  // Whoever loads the page again wants to see what happened last.
  const latest = payments.at(-1)?.order;
  useEffect(() => {
    if (screen.order === undefined && looking === undefined && screen.open === 0) setLooking(latest);
  }, [playground.scope]);

  return (
    <>
      <Masthead playground={playground} onReset={() => void reset()} />
      <main>
        <Checkout
          choice={choice}
          screen={screen}
          onChoose={choose}
          onPay={press}
          onNew={begin}
          isConnected={playground.isConnected}
        />
        <div class="result" ref={result}>
          {payment === undefined ? (
            <Invitation />
          ) : (
            <>
              <Verdict
                payment={payment}
                isRunning={looking === undefined && screen.open > 0}
                onCompare={() => compare(payment)}
              />
              <section class="card" aria-labelledby="picture-title">
                <h2 id="picture-title">Who did what, when</h2>
                <Picture payment={payment} />
                <Legend />
              </section>
              <div class="pair">
                <Story payment={payment} playground={playground} />
                <Bill payment={payment} />
              </div>
            </>
          )}
          <History payments={payments} shown={payment?.order} onShow={setLooking} />
        </div>
      </main>
    </>
  );
}

function Invitation() {
  return (
    <section class="card invitation">
      <p class="big">What does a customer pay when something breaks?</p>
      <ol>
        <li>
          <b>Choose what goes wrong</b>
          An answer that gets lost, a server that dies, a customer who taps fifty times.
        </li>
        <li>
          <b>Press Pay</b>
          The app tries again until it knows what happened. See who did what, and what was charged.
        </li>
        <li>
          <b>Switch Latchkey off</b>
          The same app, the same API, the same trouble. Look at the ledger again.
        </li>
      </ol>
      <p class="muted">
        Behind the button are a payments API in a process of its own and a payment provider with a ledger.
        Everything that you see here is what they did. No money moves.
      </p>
    </section>
  );
}

function Legend() {
  return (
    <ul class="legend">
      <li class="good">executed</li>
      <li class="replay">answered from the store</li>
      <li class="wait">told to wait, or gave up</li>
      <li class="bad">broken or refused</li>
      <li class="coin">money taken</li>
      <li class="again">money taken again</li>
    </ul>
  );
}
