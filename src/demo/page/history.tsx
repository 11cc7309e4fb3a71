import type { PaymentSummary } from "../trace.ts";
import { scenarioTexts } from "./scenario-texts.ts";
import { money } from "./words.ts";

/** Every purchase so far, so that the same trouble can be compared with and without Latchkey. */
export function History(props: {
  readonly payments: readonly PaymentSummary[];
  readonly shown: string | undefined;
  readonly onShow: (order: string) => void;
}) {
  const { payments, shown, onShow } = props;
  if (payments.length < 2) return null;
  return (
    <section class="card history" aria-labelledby="history-title">
      <h2 id="history-title">Compare what you have tried</h2>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th scope="col">Purchase</th>
              <th scope="col">What went wrong</th>
              <th scope="col">Latchkey</th>
              <th scope="col" class="number">
                Requests
              </th>
              <th scope="col" class="number">
                Charges
              </th>
              <th scope="col" class="number">
                Taken
              </th>
            </tr>
          </thead>
          <tbody>
            {payments.toReversed().map(({ order, scenario, isProtected, requests, charges, charged }) => (
              <tr key={order} class={order === shown ? "shown" : ""}>
                <td>
                  <button
                    type="button"
                    class="link"
                    aria-pressed={order === shown}
                    onClick={() => onShow(order)}
                  >
                    {order}
                  </button>
                </td>
                <td>{scenarioTexts[scenario].title}</td>
                <td>{isProtected ? "on" : "off"}</td>
                <td class="number">{requests}</td>
                <td class={`number ${charges > 1 ? "bad" : ""}`}>
                  {charges > 1 ? "✕ " : charges === 1 ? "✓ " : ""}
                  {charges}
                </td>
                <td class="number">{money(charged)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
