import { manualClock } from "../../src/testing/manual-clock.ts";
import { reportActivity } from "../../src/admin/admin.ts";
import { openShop } from "./shop.ts";

const hourMs = 3_600_000;
const tradeEveryMs = 220; // Between four and five requests each second, on average.

/** One hour of a shop's life in half a minute: the same code, on a clock that is told to go on. */
export async function liveThroughAnHour(file: string): Promise<void> {
  const clock = manualClock({ startMs: Date.now() - hourMs, seed: 7 });
  const shop = openShop(file, { runtime: clock, clock: clock.now });
  const reporting = reportActivity(shop.latchkey, { role: "api" });
  const workers = shop.startWorkers();
  const end = clock.now() + hourMs;
  const trading = new Set<Promise<void>>();
  for (let next = clock.now(); clock.now() < end; ) {
    const minute = Math.floor((clock.now() + hourMs - end) / 60_000);
    shop.setProviderSick(minute >= 31 && minute < 38);
    // Waves, as people come and go.
    const pace = 1 + 0.35 * Math.sin(minute / 7) + 0.15 * Math.sin(clock.now() / 47_000);
    next += (tradeEveryMs / pace) * (0.5 + clock.random());
    await clock.advance(Math.min(next, end) - clock.now());
    const trade = shop.trade().finally(() => trading.delete(trade));
    trading.add(trade);
  }
  let isDone = false;
  const stopped = Promise.all([...trading, workers.stop()]).then(() => reporting.stop());
  void stopped.then(() => {
    isDone = true;
  });
  // Only whoever lets the time pass can wait for something.
  while (!isDone) await clock.advance(50);
  const closed = shop.latchkey.close({ drainMs: 0 });
  await clock.advance(1_000);
  await closed;
}
