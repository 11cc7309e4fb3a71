/** What a key looks like that should not be stored, logged and shown to operators for as long as keys are. */
export type PersonalData = "e-mail address" | "phone number" | "card number";

/**
 * Whether a key looks like personal data. It is better to let one through than to refuse a key that is none: what is
 * made of digits alone is a number of some kind, unless it is a card's by its issuer and its check digit.
 *
 * @example
 * personalDataIn("receipt-ada@example.com"); // "e-mail address"
 * personalDataIn("order-1763300000000"); // undefined
 */
export function personalDataIn(key: string): PersonalData | undefined {
  const signs = signsIn(key);
  if (signs === 0 || isInGroupsOfUuid(key)) return undefined;
  if ((signs & addressSign) !== 0 && email.test(key)) return "e-mail address";
  if ((signs & phoneSign) !== 0 && (withCountryCode.test(key) || withAreaCode.test(key)))
    return "phone number";
  if ((signs & digitsSign) === 0) return undefined;
  if (inThreeGroups.test(key)) return "phone number";
  return hasCard(key) ? "card number" : undefined;
}

/** What to tell a client, without what it sent. */
export function personalKeySentence(data: PersonalData): string {
  return `The idempotency key looks like it holds ${articles[data]} ${data}; send a random value, such as a UUID, in its place.`;
}

const articles: Record<PersonalData, "an" | "a"> = {
  "e-mail address": "an",
  "phone number": "a",
  "card number": "a",
};

const addressSign = 1;
const phoneSign = 2;
const digitsSign = 4;

/**
 * One look that nearly every key passes: nothing below matches without one of these signs, or without ten digits that
 * nothing but what is printed between digits separates. A loop, because this is on the path of every request.
 */
function signsIn(key: string): number {
  let signs = 0;
  let digits = 0;
  for (let i = 0; i < key.length; i++) {
    const code = key.charCodeAt(i);
    if (code >= 0x30 && code <= 0x39) {
      digits += 1;
      if (digits === digitsMin) signs |= digitsSign;
    } else if (code !== 0x20 && code !== 0x2d && code !== 0x2e) {
      // Neither a space nor a dash nor a dot.
      digits = 0;
      if (code === 0x40 || code === 0x25) signs |= addressSign; // @ %
      if (code === 0x2b || code === 0x28) signs |= phoneSign; // + (
    }
  }
  return signs;
}

/**
 * Whether the key is in groups of 8, 4, 4, 4 and 12 hexadecimal digits. Neither phone numbers nor cards are printed so, and
 * one random UUID in twelve has ten digits with nothing but dashes between them somewhere.
 */
function isInGroupsOfUuid(key: string): boolean {
  if (key.length !== 36) return false;
  for (let i = 0; i < 36; i++) {
    const code = key.charCodeAt(i);
    const isDash = i === 8 || i === 13 || i === 18 || i === 23;
    if (isDash ? code !== 0x2d : !isHexDigit(code)) return false;
  }
  return true;
}

function isHexDigit(code: number): boolean {
  return (code >= 0x30 && code <= 0x39) || ((code | 0x20) >= 0x61 && (code | 0x20) <= 0x66);
}

const digitsMin = 10; // A phone number in its groups; a card has more.

/** Also as it is spelled in a URL. */
const email = /[^\s@](?:@|%40)(?:[a-z\d-]{1,63}\.){1,8}[a-z]{2,24}(?![a-z\d])/i;

const withCountryCode = /(?<![a-z\d])\+\d(?:[ ().-]{0,2}\d){7,14}(?![a-z\d])/i;
const withAreaCode = /(?<![a-z\d])\(\d{2,5}\)(?:[ .-]?\d){5,12}(?![a-z\d])/i;
const inThreeGroups = /(?<![a-z\d])\d{3}([ .-])\d{3}\1\d{4}(?![a-z\d])/i;

/**
 * Digits in one run, or as they are printed on cards: in fours, or as four, six and the rest. What follows a decimal
 * point is a fraction, as in a key that is made of Math.random().
 */
const cards =
  /(?<![a-z\d]|\d\.)(?:\d{13,19}|\d{4}([ -])\d{4}\1\d{4}\1\d{4}(?:\1\d{1,3})?|\d{4}([ -])\d{6}\2\d{4,5})(?![a-z\d])/gi;

function hasCard(key: string): boolean {
  for (const [match] of key.matchAll(cards)) {
    const digits = match.replace(/\D/g, "");
    if (issuers.some((issuer) => issuer.test(digits)) && hasCheckDigit(digits)) return true;
  }
  return false;
}

/** How the numbers of each issuer begin, and how long they are. No time of our age begins like one. */
const issuers = [
  /^4(?:\d{12}|\d{15}|\d{18})$/, // Visa
  /^(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}$/, // Mastercard
  /^3[47]\d{13}$/, // American Express
  /^3(?:0[0-59]|[689]\d)\d{11}$/, // Diners Club
  /^(?:6011|64[4-9]\d|65\d\d)\d{12,15}$/, // Discover
  /^35(?:2[89]|[3-8]\d)\d{12,15}$/, // JCB
  /^62\d{14,17}$/, // UnionPay
  /^(?:5018|5020|5038|5893|6304|6759|676[1-3])\d{9,15}$/, // Maestro
  /^220[0-4]\d{12}$/, // Mir
];

/** The Luhn sum, with which nine of ten numbers that are none are told from a card's. */
function hasCheckDigit(digits: string): boolean {
  let sum = 0;
  for (let i = 0; i < digits.length; i++) {
    const digit = Number(digits[digits.length - 1 - i]);
    const weighted = i % 2 === 0 ? digit : digit * 2;
    sum += weighted > 9 ? weighted - 9 : weighted;
  }
  return sum % 10 === 0;
}
