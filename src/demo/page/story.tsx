import type { PaymentView } from "../trace.ts";
import { seconds } from "./axis.ts";
import { ConsoleLink } from "./console-link.tsx";
import type { Playground } from "./playground.ts";
import { storyOf } from "./words.ts";

/** What happened, line by line, in words. */
export function Story({
  payment,
  playground,
}: {
  readonly payment: PaymentView;
  readonly playground: Playground;
}) {
  return (
    <section class="card story" aria-labelledby="story-title">
      <div class="title-line">
        <h2 id="story-title">What happened</h2>
        {payment.isProtected && payment.key !== null ? (
          <ConsoleLink playground={playground} payment={payment}>
            This record in the console
          </ConsoleLink>
        ) : null}
      </div>
      <ol class="scroll">
        {storyOf(payment.entries, payment).map(({ at, who, text, tone, times }, index) => (
          <li key={index} class={tone}>
            <time>{seconds(at - payment.startedAt)}</time>
            <b>{who}</b>
            <span>
              {text}
              {times > 1 ? <em> ×{times}</em> : null}
            </span>
          </li>
        ))}
      </ol>
      {payment.key === null ? null : (
        <p class="muted">
          Idempotency-Key: <code>{payment.key}</code>
          {payment.isProtected ? "" : " (sent, and ignored)"}
        </p>
      )}
    </section>
  );
}
