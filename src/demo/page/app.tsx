import { useEffect, useState } from "preact/hooks";
import { Bill } from "./bill.tsx";
import { Checkout } from "./checkout.tsx";
import { History } from "./history.tsx";
import { Masthead } from "./masthead.tsx";
import { Picture } from "./picture.tsx";
import { usePlayground } from "./playground.ts";
import { type Choice, usePurchase } from "./purchases.ts";
import { scenarioTexts } from "./scenario-texts.ts";
import { Story } from "./story.tsx";

const firstChoice: Choice = { scenario: "response-lost", isProtected: true, amount: 2_000 };

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
  const reset = async () => {
    begin();
    await fetch("/api/reset", { method: "POST" });
  };
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
        <div class="result">
          {payment === undefined ? (
            <Invitation choice={choice} />
          ) : (
            <>
              <Bill.Verdict payment={payment} isRunning={looking === undefined && screen.open > 0} />
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

function Invitation({ choice }: { readonly choice: Choice }) {
  const { title, what, watch } = scenarioTexts[choice.scenario];
  return (
    <section class="card invitation">
      <p class="big">Press Pay, and see what happens when things go wrong.</p>
      <p>
        <strong>{title}.</strong> {what} {watch}
      </p>
      <p class="muted">
        Behind the button are a payments API in a process of its own, a payment provider with a ledger, and an
        app that tries again. Everything you see is what they did. No money moves.
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
    </ul>
  );
}
