import type { GatewayCheck, GatewayFlags } from "../../gateway/gateway.ts";
import { command, type Input, jsonOption, noArguments } from "../command.ts";
import type { Context } from "../context.ts";
import { failureOf, usage } from "../failure.ts";
import { flag, text, wholeNumber } from "../option.ts";

const gatewayOptions = {
  upstream: text({
    placeholder: "URL",
    description: "The service behind it. Required, here or in the file.",
  }),
  port: wholeNumber({
    placeholder: "PORT",
    description: "Where it listens; 0 for any that is free.",
    byDefault: "8080",
    min: 0,
    max: 65_535,
  }),
  host: text({ placeholder: "HOST", description: "On which address.", byDefault: "127.0.0.1" }),
  store: text({
    placeholder: "URL",
    description: "Where records live.",
    byDefault: "what the file says, or $LATCHKEY_STORE where there is no file, or else sqlite:./latchkey.db",
  }),
  tenant: text({
    placeholder: "HOW",
    description: "Who is calling: header:NAME, jwt:CLAIM or single. Required, here or in the file.",
  }),
  config: text({
    placeholder: "FILE",
    description: "Routes, policies and everything else, as YAML.",
    isFile: true,
  }),
  check: flag("Says everything that is wrong with flags and file, opens nothing, and ends."),
  ...jsonOption,
};

export const gateway = command({
  name: "gateway",
  summary: "the reverse proxy: idempotency for a service in any language",
  description:
    "Runs a gateway in front of a service until SIGTERM or SIGINT, which let requests under way end; a second signal ends it at once. " +
    "SIGHUP reads the file again: what cannot be used changes nothing, and the log says why. What a flag says takes the place of what the " +
    "file says. docs/gateway.md has all of the file.",
  arguments: noArguments,
  options: gatewayOptions,
  examples: [
    {
      command:
        "latchkey gateway --upstream http://127.0.0.1:3000 --store sqlite:./latchkey.db --tenant header:authorization",
      does: "POST and PATCH are protected, and everything else passes",
    },
    {
      command: "latchkey gateway --config gateway.yaml --check",
      does: "exit code 2 and every complaint with its line",
    },
    { command: "kill -HUP $PID", does: "takes over a changed file without a restart" },
  ],
  async run(context, { options }) {
    const flags = flagsOf(context, options);
    // Loaded here, because no other command needs a proxy.
    const { checkGateway, problemLine, readSettings, startGateway } = await import(
      "../../gateway/gateway.ts"
    );
    if (options.check) return tell(context, await checkGateway(flags, context.env), problemLine);
    const settings = await readSettings(flags, context.env);
    const stopped = context.untilStopped();
    const { logger } = context;
    const starting = startGateway(settings, { logger });
    const reload = async () => {
      try {
        const running = await starting;
        await running.reload(await readSettings(flags, context.env));
        logger.info({}, "the configuration was taken over");
      } catch (error) {
        logger.error({ reason: failureOf(error).message }, "the configuration was not taken over");
      }
    };
    const onHangup = () => void reload();
    // Without a listener the signal would end the process, while it starts and while it waits for requests to end.
    process.on("SIGHUP", onHangup);
    try {
      const running = await starting;
      try {
        const { url } = running;
        await context.answer({ url }, () => `The gateway listens on ${url}`);
        await stopped;
      } finally {
        await running.close();
      }
    } finally {
      process.off("SIGHUP", onHangup);
    }
  },
});

function flagsOf({ env, secrets }: Context, options: Input<typeof gatewayOptions>["options"]): GatewayFlags {
  const { upstream, port, host, tenant, config } = options;
  const store = options.store ?? (config === undefined ? env.LATCHKEY_STORE : undefined);
  if (store !== undefined) secrets.addUrl(store);
  return { upstream, port, host, store, tenant, config };
}

async function tell(
  context: Context,
  { errors, warnings }: GatewayCheck,
  line: (problem: GatewayCheck["errors"][number]) => string,
): Promise<void> {
  const shown = [...errors, ...warnings].map((problem) => line(problem)).join("\n");
  await context.answer({ isUsable: errors.length === 0, errors, warnings }, () =>
    [shown, errors.length === 0 ? "the configuration can be used" : ""]
      .filter((part) => part !== "")
      .join("\n"),
  );
  if (errors.length > 0) throw usage(`the configuration has ${errors.length} errors`);
}
