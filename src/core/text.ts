/**
 * A text from outside, such as an error's message, as every database takes it: not every one takes every character, and
 * what one refused it would refuse together with everything beside it.
 */
export function storableText(value: unknown, charactersMax: number): string {
  return String(value).slice(0, charactersMax).replace(/\p{C}/gu, "\ufffd");
}

/** Enough for an operator to see what is wrong; a stack belongs into the log. */
export const reasonCharactersMax = 1_000;
