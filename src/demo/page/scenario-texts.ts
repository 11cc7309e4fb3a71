import type { ScenarioId } from "../scenarios.ts";

interface ScenarioText {
  readonly title: string;
  /** What it is: one sentence that fits on a line. */
  readonly what: string;
  /** What to watch for. */
  readonly watch: string;
}

export const scenarioTexts: Readonly<Record<ScenarioId, ScenarioText>> = {
  nothing: {
    title: "Nothing goes wrong",
    what: "One press, one request, one answer.",
    watch: "Press Pay again and again, as impatient people do: it is one and the same purchase.",
  },
  "response-lost": {
    title: "The answer gets lost",
    what: "The card is charged, then the line breaks.",
    watch: "The app cannot know that it has paid, so it has to try again. Is that a second charge?",
  },
  "provider-slow": {
    title: "The provider is slow",
    what: "The charge takes longer than the app waits.",
    watch: "The app tries again while its first request is still at work.",
  },
  "server-killed": {
    title: "The server is killed",
    what: "kill -9, just after the charge.",
    watch: "Nobody knows what happened. The next process asks the provider instead of guessing.",
  },
  "fifty-taps": {
    title: "Fifty taps at once",
    what: "Fifty requests for one purchase.",
    watch: "They race each other, five at a time. One of them may pay; all get the same answer.",
  },
  "key-reused": {
    title: "Same key, another amount",
    what: "A bug: €5 more, under the first one's key.",
    watch: "That is not a retry of the first request, so it has to be refused.",
  },
  "provider-down": {
    title: "The provider is down",
    what: "It refuses twice and charges nothing.",
    watch: "Nothing was charged, so the key must not be stuck: the third try has to go through.",
  },
};
