import { useState } from "preact/hooks";
import { scenarioIds } from "../scenarios.ts";
import type { AppScreen, Choice } from "./purchases.ts";
import { scenarioTexts } from "./scenario-texts.ts";
import { money } from "./words.ts";

interface CheckoutProps {
  readonly choice: Choice;
  readonly screen: AppScreen;
  readonly isConnected: boolean;
  readonly onChoose: (change: Partial<Choice>) => void;
  readonly onPay: () => void;
  readonly onNew: () => void;
}

/** Everything that a person can decide: with or without Latchkey, what goes wrong, how much, and when. */
export function Checkout({ choice, screen, isConnected, onChoose, onPay, onNew }: CheckoutProps) {
  const { isProtected, scenario } = choice;
  return (
    <form
      class="checkout"
      onSubmit={(event) => {
        event.preventDefault();
        onPay();
      }}
    >
      <div class={`card switch-card ${isProtected ? "on" : "off"}`}>
        <button
          type="button"
          role="switch"
          aria-checked={isProtected}
          class="switch"
          onClick={() => onChoose({ isProtected: !isProtected })}
        >
          <span class="knob" aria-hidden="true" />
          <span>
            Latchkey <b>{isProtected ? "on" : "off"}</b>
          </span>
        </button>
        <p>{isProtected ? "One key for each purchase, honoured." : "The same code, without protection."}</p>
      </div>

      <fieldset class="card scenarios">
        <legend>What goes wrong?</legend>
        {scenarioIds.map((id) => {
          const { title, what } = scenarioTexts[id];
          return (
            <label key={id} class={id === scenario ? "chosen" : ""}>
              <input
                type="radio"
                name="scenario"
                value={id}
                checked={id === scenario}
                onChange={() => onChoose({ scenario: id })}
              />
              <span>
                <b>{title}</b>
                <span class="what">{what}</span>
              </span>
            </label>
          );
        })}
      </fieldset>

      <div class="card pay-card">
        <p class="watch">{scenarioTexts[scenario].watch}</p>
        <div class="amount-line">
          <AmountField amount={choice.amount} onAmount={(amount) => onChoose({ amount })} />
          <button type="button" class="quiet" onClick={onNew} disabled={screen.taps === 0}>
            New purchase
          </button>
        </div>
        <button type="submit" class="pay" disabled={!isConnected}>
          Pay {money(choice.amount)}
        </button>
        <p class="app-says" role="status">
          {screen.trouble ?? appSays(screen)}
        </p>
      </div>
    </form>
  );
}

function AmountField({
  amount,
  onAmount,
}: {
  readonly amount: number;
  readonly onAmount: (cents: number) => void;
}) {
  const [text, setText] = useState((amount / 100).toFixed(2));
  const isValid = /^\d{1,4}([.,]\d{1,2})?$/.test(text) && Number(text.replace(",", ".")) > 0;
  return (
    <label class="amount">
      Amount €
      <input
        inputMode="decimal"
        value={text}
        aria-invalid={!isValid}
        onInput={(event) => setText(event.currentTarget.value)}
        onChange={() => {
          // What is no amount does not change anything: the button says what will be paid.
          if (isValid) onAmount(Math.round(100 * Number(text.replace(",", "."))));
          else setText((amount / 100).toFixed(2));
        }}
      />
    </label>
  );
}

/** What the customer's app would show. */
function appSays({ latest, open, taps }: AppScreen): string {
  if (latest === undefined) return taps === 0 ? "Not paid yet." : "Sending…";
  const others = open > 0 ? ` ${open} of ${taps} presses still wait.` : "";
  switch (latest.kind) {
    case "trying":
      return latest.attempt === 1 ? `Sending…${others}` : `No answer yet: try ${latest.attempt}…${others}`;
    case "paid":
      return `Paid (${latest.charge}). Press again: it is still the same purchase.${others}`;
    case "refused":
      return `Refused (${latest.status}): ${latest.why}.${others}`;
    case "gave-up":
      return `No answer after twenty tries. Press again: the key is still the same.${others}`;
    default:
      return latest satisfies never;
  }
}
