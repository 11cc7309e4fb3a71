export type ProfileName = "ietf" | "stripe" | "acp";

/** What an API of this kind says on the wire. Written down here anew: a yardstick takes no measure from what it measures. */
export interface Profile {
  readonly name: ProfileName;
  /** Who says so, for sentences. */
  readonly source: string;
  readonly isKeyRequired: boolean;
  /** The status for a key that came first with another request. */
  readonly misuseStatus: number;
  /** The header that marks a replay; undefined where nothing is said about it. */
  readonly replayedHeader: string | undefined;
  readonly echoesKey: boolean;
  /** Whether its errors are to be RFC 9457 problem documents. */
  readonly speaksProblems: boolean;
}

export const profiles: Readonly<Record<ProfileName, Profile>> = {
  ietf: {
    name: "ietf",
    source: "the Internet-Draft",
    isKeyRequired: true,
    misuseStatus: 422,
    // The draft names no header for it.
    replayedHeader: undefined,
    echoesKey: false,
    speaksProblems: true,
  },
  stripe: {
    name: "stripe",
    source: "Stripe",
    isKeyRequired: false,
    misuseStatus: 400,
    replayedHeader: "Idempotent-Replayed",
    echoesKey: true,
    speaksProblems: false,
  },
  acp: {
    name: "acp",
    source: "the Agentic Commerce Protocol",
    isKeyRequired: true,
    misuseStatus: 422,
    replayedHeader: "Idempotent-Replayed",
    echoesKey: true,
    speaksProblems: false,
  },
};

/** The names under which a replay is marked in the field. */
export const replayedHeaders = ["Idempotency-Replayed", "Idempotent-Replayed"] as const;

/** Statuses that refuse a key because of how it was used before. */
export const misuseStatuses: readonly number[] = [400, 409, 422];
/** Statuses that say that the first request is still under way, or that the same may be tried again. */
export const waitStatuses: readonly number[] = [409, 425, 429, 503];
