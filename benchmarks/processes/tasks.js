/**
 * Does what the parent asks for, and answers. When the parent is gone, so is the reason to run.
 *
 * @param {Record<string, (options: any) => Promise<unknown>>} tasks
 * @param {() => Promise<unknown>} close
 */
export function doAsAsked(tasks, close) {
  process.on("message", async (/** @type {{ task: string, options: object }} */ { task, options }) => {
    try {
      process.send?.({ answer: await tasks[task]?.(options) });
    } catch (error) {
      process.send?.({ error: String(error) });
    }
  });
  process.on("disconnect", () => void close().then(() => process.exit()));
  process.send?.("ready");
}
