import type { ComponentChildren } from "preact";
import type { PaymentSummary } from "../trace.ts";
import type { Playground } from "./playground.ts";

/** Where the console keeps its token: for one tab, and for those that are opened from it. */
const tokenName = "latchkey-token";

/** Signs the demo's operator in, in every tab that is opened from this one later on. */
export function keepOperatorToken(token: string): void {
  sessionStorage.setItem(tokenName, token);
}

/** Opens the console, on the record of a payment if there is one, and signed in as the demo's operator. */
export function ConsoleLink(props: {
  readonly playground: Playground;
  readonly payment?: PaymentSummary;
  readonly children: ComponentChildren;
}) {
  const { playground, payment, children } = props;
  const { scope } = playground;
  const query = new URLSearchParams({ scope, key: payment?.key ?? "" });
  const address = `/console/${payment === undefined ? "" : `#/record?${query}`}`;
  const open = (event: MouseEvent) => {
    event.preventDefault();
    // A tab that a script opens gets a copy of this one's session storage; for a link, browsers differ.
    window.open(address);
  };
  return (
    <a href={address} onClick={open}>
      {children}
    </a>
  );
}
