import type { ScenarioId } from "../scenarios.ts";

interface ScenarioText {
  readonly title: string;
  /** What it is, and what to watch for: one sentence each. */
  readonly what: string;
  readonly watch: string;
}

export const scenarioTexts: Readonly<Record<ScenarioId, ScenarioText>> = {
  nothing: {
    title: "Nothing goes wrong",
    what: "One press, one request, one answer.",
    watch: "Now press Pay again, as impatient people do: it is the same purchase.",
  },
  "response-lost": {
    title: "The answer gets lost",
    what: "The card is charged, and then the connection breaks.",
    watch: "The app cannot know that it has paid, so it has to try again.",
  },
  "provider-slow": {
    title: "The provider is slow",
    what: "The charge takes longer than the app waits for it.",
    watch: "The app tries again while the first request is still at work.",
  },
  "server-killed": {
    title: "The server is killed",
    what: "kill -9, after the charge and before it is written down.",
    watch: "Nobody knows what happened; the new process asks the provider instead of guessing.",
  },
  "fifty-taps": {
    title: "Fifty taps at once",
    what: "Fifty requests for one purchase race each other.",
    watch: "One of them may pay, and all of them get the same answer.",
  },
  "key-reused": {
    title: "Same key, another amount",
    what: "A bug in the app sends a second amount under the first one's key.",
    watch: "That is not a retry, so it has to be refused.",
  },
  "provider-down": {
    title: "The provider is down",
    what: "It refuses twice, and has charged nothing.",
    watch: "The key must not be stuck: the third try has to go through.",
  },
};
