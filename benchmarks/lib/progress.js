const width = 30;

/**
 * A bar on the terminal, or the same as messages to the process that runs all benchmarks. Nobody else sees anything.
 *
 * @param {number} total steps
 */
export function createProgress(total) {
  let done = 0;
  return {
    /** @param {string} line what was just done */
    step(line) {
      done += 1;
      const share = Math.min(1, done / total);
      if (process.send !== undefined) process.send({ kind: "progress", share, line });
      else draw(share, line);
    },
  };
}

/**
 * @param {number} share from 0 to 1
 * @param {string} line
 */
export function draw(share, line) {
  if (!process.stderr.isTTY) return;
  const filled = Math.round(share * width);
  process.stderr.write(
    `\r[${"#".repeat(filled)}${".".repeat(width - filled)}] ${line.slice(0, 70).padEnd(70)}`,
  );
  if (share >= 1) process.stderr.write("\n");
}
