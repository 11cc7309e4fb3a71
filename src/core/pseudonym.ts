import { hash } from "node:crypto";

/** Enough that two tenants of one deployment do not share one. */
const digestCharacters = 16;

/** Tells texts apart without saying what they are. It is a pseudonym: whoever can guess the text can check the guess. */
export function digestOf(text: string): string {
  return `sha256:${hash("sha256", text, "hex").slice(0, digestCharacters)}`;
}

/** The tenant as dashboards and logs may show it: one that looks like a person is shown as a digest. */
export function shownTenant(tenant: string): string {
  return looksPersonal(tenant) ? digestOf(tenant) : tenant;
}

/**
 * An e-mail address, a phone number with its country, or as many digits as a card or an account number has. Less exact than
 * `personalDataIn`, on purpose: a key that is refused by mistake is a payment that fails, a tenant that is shown as a digest
 * by mistake is only harder to read.
 */
function looksPersonal(text: string): boolean {
  if (text.includes("@")) return true;
  const digits = text.replace(/%20|[\s().-]/g, "");
  return /^\+\d{7,15}$/.test(digits) || /^\d{12,19}$/.test(digits);
}
