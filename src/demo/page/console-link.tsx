import type { ComponentChildren } from "preact";
import type { PaymentSummary } from "../trace.ts";
import type { Playground } from "./playground.ts";

/** Where the console keeps its token: for one tab, and for those that are opened from it. */
const tokenName = "latchkey-token";

/** Opens the console, on the record of a payment if there is one, and signed in as the demo's operator. */
export function ConsoleLink(props: {
  readonly playground: Playground;
  readonly payment?: PaymentSummary;
  readonly children: ComponentChildren;
}) {
  const { playground, payment, children } = props;
  const { scope, operatorToken } = playground;
  const query = new URLSearchParams({ scope, key: payment?.key ?? "" });
  const signIn = () => sessionStorage.setItem(tokenName, operatorToken);
  return (
    <a
      href={`/console/${payment === undefined ? "" : `#/record?${query}`}`}
      target="_blank"
      // The new tab gets a copy of this one's session storage only if it knows where it came from.
      rel="noopener opener"
      onClick={signIn}
      onAuxClick={signIn}
    >
      {children}
    </a>
  );
}
