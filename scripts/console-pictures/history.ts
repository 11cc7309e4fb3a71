import { reportActivity } from "../../src/admin/admin.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { openShop } from "./shop.ts";

const hourMs = 3_600_000;
const tradeEveryMs = 500; // Two requests each second, on average.

/** One hour of a shop's life in half a minute: the same code, on a clock that is told to go on. */
export async function liveThroughAnHour(file: string): Promise<void> {
  const clock = manualClock({ startMs: Date.now() - hourMs, seed: 7 });
  const shop = openShop(file, { runtime: clock, clock: () => Math.floor(clock.now()) });
  const reporting = reportActivity(shop.latchkey, { role: "api" });
  const workers = shop.startWorkers();
  const start = clock.now();
  const trading = new Set<Promise<void>>();
  let isTheOneLost = false;
  // The present goes on meanwhile, and has to be caught up with.
  for (let next = start; clock.now() < Date.now(); ) {
    const minute = Math.floor((clock.now() - start) / 60_000);
    shop.setProviderSick(minute >= 31 && minute < 38);
    // Waves, as people come and go.
    const pace = 1 + 0.35 * Math.sin(minute / 7) + 0.15 * Math.sin(clock.now() / 47_000);
    next += (tradeEveryMs / pace) * (0.5 + clock.random());
    await clock.advance(next - clock.now());
    if (minute === 34 && !isTheOneLost) {
      isTheOneLost = true;
      void shop.payTheOne({ isLost: true });
    }
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
