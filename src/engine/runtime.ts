import { turnEnd } from "../core/turn-end.ts";

/** Stops a timer that has not fired. */
export type Cancel = () => void;

/**
 * Everything that the engine takes from the outside world besides its store. Passing another one in puts a whole
 * cluster of engines into one process on virtual time, repeatable from one seed.
 */
export interface Runtime {
  /**
   * Milliseconds since 1970, on a clock that never goes back and never jumps: leases and time-outs are measured by it,
   * and must not run out, or go on for ever, because somebody set the machine's clock. Never compared with the store's.
   */
  now(): number;
  /**
   * What the machine's clock says right now, which may be set and goes on while the machine is suspended: for times that
   * come from other machines. As `now` if left out.
   */
  wallNow?(): number;
  /** A `background` timer is no reason for the process to stay alive. */
  setTimer(run: () => void, ms: number, options?: { readonly background: boolean }): Cancel;
  /** A number from 0 (inclusive) to 1 (exclusive). */
  random(): number;
  /** Resolves after all that this turn of the event loop still brings. Nothing is put off if left out. */
  turnEnd?(): Promise<void>;
}

/** It never changes, and asking for it costs as much as asking for the time. */
const { timeOrigin } = performance;

/** The real clock, real timers, real randomness. */
export const systemRuntime: Runtime = {
  now: () => timeOrigin + performance.now(),
  wallNow: () => Date.now(),
  setTimer(run, ms, options) {
    const timer = setTimeout(run, Math.min(ms, timerMsMax));
    if (options?.background) timer.unref();
    return () => clearTimeout(timer);
  },
  random: Math.random,
  // Fetch platforms need not have one.
  ...(typeof setImmediate === "function" ? { turnEnd } : {}),
};

/** Puts a step of a request off until the end of the turn, where others of its kind are done. */
export function withTheTurn<T>(runtime: Runtime, step: () => T | Promise<T>): T | Promise<T> {
  return runtime.turnEnd === undefined ? step() : runtime.turnEnd().then(step);
}

/** A timer of Node's that is to run for longer runs out at once. */
export const timerMsMax = 2 ** 31 - 1;

/** The time to compare with what other machines say. */
export function wallTime(runtime: Runtime): number {
  return runtime.wallNow?.() ?? runtime.now();
}

/** Resolves after `ms`, or as soon as `wake` is called. */
export function sleeper(runtime: Runtime): { sleep(ms: number): Promise<void>; wake(): void } {
  let awake: (() => void) | undefined;
  let woken = false;
  return {
    sleep(ms) {
      // A wake-up that came while nobody slept must not be lost.
      if (woken) {
        woken = false;
        return Promise.resolve();
      }
      return new Promise((resolve) => {
        const finish = () => {
          cancel();
          awake = undefined;
          woken = false;
          resolve();
        };
        const cancel = runtime.setTimer(finish, ms);
        awake = finish;
      });
    },
    wake() {
      woken = true;
      awake?.();
    },
  };
}

/** 80 bits: enough that two processes of one deployment never share a name. */
export function randomName(runtime: Runtime): string {
  let name = "";
  while (name.length < 16) name += Math.floor(runtime.random() * 32).toString(32);
  return name;
}
