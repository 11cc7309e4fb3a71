import { type Attack, minute, payments } from "./attack.ts";

const guessesPerMinute = 20;

/** Keys are guessed at the status resource. Damage: what was seen of others, and guesses beyond (or below) the limit. */
export const keyEnumeration: Attack = async (isGuarded) => {
  const api = payments({
    latchkey: isGuarded
      ? { limits: { lookUps: { max: guessesPerMinute, perMs: minute }, of: unlimited("victim") } }
      : {},
  });
  const keys = Array.from({ length: 200 }, (_, nth) => `key-${nth}`);
  for (const key of keys.slice(100)) await api.pay(key, { tenant: "victim" });
  let foreign = 0;
  let answered = 0;
  for (const key of keys) {
    const { status } = await api.status(key, "attacker");
    if (status !== 429) answered += 1;
    if (status !== 429 && status !== 404) foreign += 1;
  }
  return foreign + Math.abs(answered - guessesPerMinute);
};

const keysMax = 50;

/** One tenant makes up keys as fast as it can. Damage: what it fills the store with beyond its cap, or is denied below. */
export const keySpraying: Attack = async (isGuarded) => {
  const api = payments({
    latchkey: isGuarded
      ? { limits: { newKeys: { max: 10, perMs: minute }, activeKeys: keysMax, of: unlimited("bystander") } }
      : {},
  });
  let kept = 0;
  for (let minutes = 0; minutes < 20; minutes += 1) {
    for (let nth = 0; nth < 30; nth += 1) {
      const { status } = await api.pay(`${minutes}-${nth}`, { tenant: "attacker" });
      if (status !== 429) kept += 1;
    }
    // Whoever does not spray is not limited by those who do.
    if ((await api.pay(`bystander-${minutes}`, { tenant: "bystander" })).status !== 201) kept += 1000;
    await api.clock.advance(minute);
  }
  return Math.abs(kept - keysMax);
};

function unlimited(name: string) {
  const none = { max: Number.POSITIVE_INFINITY, perMs: minute };
  return (tenant: string) =>
    tenant === name ? { lookUps: none, newKeys: none, activeKeys: Number.POSITIVE_INFINITY } : undefined;
}

/**
 * A payment succeeds and is cancelled, and then its client retries. Damage: answers that are not the first one again,
 * and clients that take what was for what is.
 */
export const staleCache: Attack = async (isGuarded) => {
  let state = "none";
  const api = payments({
    handler: () => {
      state = "succeeded";
      return Response.json({ state }, { status: 201 });
    },
  });
  const first = await (await api.pay("k")).text();
  state = "cancelled";
  const retry = await api.pay("k");
  const text = await retry.text();
  // The mark is what tells a client that it has to read the payment itself to know how it stands.
  const isMarked = isGuarded && retry.headers.get("idempotency-replayed") === "true";
  const believed = isMarked ? state : (JSON.parse(text) as { state: string }).state;
  return (text === first ? 0 : 1) + (believed === state ? 0 : 1) + (api.paid() - 1);
};
