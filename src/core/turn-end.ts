/*
 * The end of a turn of the event loop, when everything that came in it has been read. Doing the same thing for many requests
 * in a row takes a fraction of the time that it takes between all the other work of each: what it needs is at hand from the
 * second on.
 */

/**
 * Does something at the end of this turn. What is asked for while a turn ends is done before it is over: an answer is settled,
 * sealed and sent to a database at the end of one turn, and not of three.
 */
export function atTurnEnd(task: () => void): void {
  if (isEnding) process.nextTick(task);
  else if (tasks.push(task) === 1) setImmediate(endTurn);
}

/** Resolves at the end of this turn, for all who wait for it. Each goes on in the asynchronous context that it has now. */
export function turnEnd(): Promise<void> {
  next ??= new Promise((resolve) => {
    atTurnEnd(() => {
      next = undefined;
      resolve();
    });
  });
  return next;
}

let tasks: (() => void)[] = [];
let next: Promise<void> | undefined;
let isEnding = false;

function endTurn(): void {
  isEnding = true;
  beOverAfter(stepsMax);
  const all = tasks;
  tasks = [];
  let done = 0;
  try {
    while (done < all.length) all[done++]?.();
  } finally {
    // A task that throws takes none of the others with it.
    for (const task of all.slice(done)) atTurnEnd(task);
  }
}

/** What follows from a request at the end of a turn: its reservation or outcome, the seal on it, the batch that it is in. */
const stepsMax = 4;

/** When everything has been done that each step has led to: promises come before the next tick, and ticks after all of them. */
function beOverAfter(steps: number): void {
  process.nextTick(() => {
    if (steps === 0) isEnding = false;
    else queueMicrotask(() => beOverAfter(steps - 1));
  });
}
