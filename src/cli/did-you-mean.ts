import { nearest } from "../core/nearest.ts";

/** " (did you mean …?)" for a word that is nearly one of those that are known; nothing for any other. */
export function didYouMean(word: string, known: readonly string[]): string {
  const meant = nearest(word, known);
  return meant === undefined ? "" : ` (did you mean ${meant}?)`;
}
