import type { PaymentView } from "../trace.ts";
import { seconds } from "./axis.ts";
import { scenarioTexts } from "./scenario-texts.ts";
import { money, verdictOf } from "./words.ts";

/** The provider's ledger for one purchase: what the customer has really paid. */
export function Bill({ payment }: { readonly payment: PaymentView }) {
  const charges = payment.entries.filter((entry) => entry.kind === "charged");
  const tooMuch = payment.charged - payment.amount;
  return (
    <section class="card ledger" aria-labelledby="ledger-title">
      <h2 id="ledger-title">The provider's ledger</h2>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th scope="col">Charge</th>
              <th scope="col">After</th>
              <th scope="col" class="number">
                Taken
              </th>
            </tr>
          </thead>
          <tbody>
            {charges.map((entry, index) => (
              <tr key={entry.charge} class={index === 0 ? "" : "bad"}>
                <td>{entry.charge}</td>
                <td>{seconds(entry.at - payment.startedAt)}</td>
                <td class="number">{money(entry.amount)}</td>
              </tr>
            ))}
          </tbody>
          <tfoot>
            <tr>
              <th scope="row" colSpan={2}>
                Total
              </th>
              <td class="number">{money(payment.charged)}</td>
            </tr>
          </tfoot>
        </table>
      </div>
      <p class="muted">
        The purchase costs {money(payment.amount)}.
        {payment.charges > 1 && tooMuch > 0 ? (
          <>
            {" "}
            The customer has paid <strong class="bad">{money(tooMuch)} too much</strong>.
          </>
        ) : null}
      </p>
    </section>
  );
}

/** What it came to, in one sentence that is read aloud when it changes. */
export function Verdict(props: {
  readonly payment: PaymentView;
  readonly isRunning: boolean;
  readonly onCompare: () => void;
}) {
  const { payment, isRunning, onCompare } = props;
  const { text, tone } = verdictOf(payment);
  return (
    <section class={`card verdict ${tone}`} aria-live="polite">
      <span class="mark" aria-hidden="true">
        {tone === "good" ? "✓" : tone === "bad" ? "✕" : "…"}
      </span>
      <div>
        <p class="big">{text}</p>
        <p>
          Purchase {payment.order} · {scenarioTexts[payment.scenario].title} · Latchkey{" "}
          <b>{payment.isProtected ? "on" : "off"}</b>
          {isRunning ? " · the app is still trying" : ""}
        </p>
      </div>
      <button type="button" onClick={onCompare} disabled={isRunning}>
        The same with Latchkey {payment.isProtected ? "off" : "on"}
      </button>
    </section>
  );
}
