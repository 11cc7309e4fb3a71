/** What can go wrong in the playground. The page has the words for each. */
export const scenarioIds = [
  "nothing",
  "response-lost",
  "provider-slow",
  "server-killed",
  "fifty-taps",
  "key-reused",
  "provider-down",
] as const;

export type ScenarioId = (typeof scenarioIds)[number];

export function isScenarioId(value: unknown): value is ScenarioId {
  return scenarioIds.some((id) => id === value);
}

/** The trouble that one payment still has before it; each part of the playground uses up its own. */
export interface Faults {
  /** How many answers the network loses on their way back. */
  answersLost: number;
  /** How often the payments API is killed after the provider has charged, and before it hears of it. */
  kills: number;
  /** How many calls the provider refuses before it does anything. */
  refusals: number;
  readonly providerMs: number;
}

const providerMs = 350; // What a card payment takes on a good day.
const slowProviderMs = 2_500; // Longer than the page's client waits for its first answer, shorter than for its second.

/** `fifty-taps` and `key-reused` are what the client does: nothing breaks on the way. */
export function faultsOf(scenario: ScenarioId): Faults {
  return {
    answersLost: scenario === "response-lost" ? 1 : 0,
    kills: scenario === "server-killed" ? 1 : 0,
    refusals: scenario === "provider-down" ? 2 : 0,
    providerMs: scenario === "provider-slow" ? slowProviderMs : providerMs,
  };
}
