import { command, jsonOption, noArguments } from "../command.ts";
import { text, wholeNumber } from "../option.ts";

export const demo = command({
  name: "demo",
  summary: "the playground: a payments API, workers and console on an embedded store",
  description:
    "Starts a payments API, a fake provider, the workers, the console and a page on which you press Pay and choose what goes wrong. " +
    "Everything is on this machine, and ends with Ctrl-C.",
  arguments: noArguments,
  options: {
    port: wholeNumber({
      placeholder: "PORT",
      description: "Where the page is.",
      byDefault: "4500, or any that is free",
      min: 0,
      max: 65_535,
    }),
    folder: text({
      placeholder: "FOLDER",
      description: "Where the SQLite file goes, and stays.",
      byDefault: "a temporary folder that is removed at the end",
      isFile: true,
    }),
    ...jsonOption,
  },
  examples: [
    { command: "latchkey demo", does: "opens it all, and says where" },
    { command: "latchkey demo --port 8080 --folder ./demo", does: "on this port, and the records stay" },
  ],
  async run(context, { options: { port, folder } }) {
    const stopped = context.untilStopped();
    const { startDemo } = await import("../../demo/demo.ts");
    const running = await startDemo({
      ...(port === undefined ? {} : { port }),
      ...(folder === undefined ? {} : { folder }),
      log: (line) => void context.note(line),
    });
    try {
      const { url } = running;
      await context.answer({ url }, () => `The playground is open: ${url}\nCtrl-C ends it.`);
      await stopped;
    } finally {
      await running.close();
    }
  },
});
