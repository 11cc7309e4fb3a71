import type { AskOptions, Enforcement } from "../../conformance/audit/asking.ts";
import type { AuditedOperation } from "../../conformance/audit/audit.ts";
import type { Operation } from "../../conformance/audit/operations.ts";
import { command, type Input, jsonOption } from "../command.ts";
import { confirm } from "../confirm.ts";
import type { Context } from "../context.ts";
import { exitCodes, Failure, failed, usage } from "../failure.ts";
import { headersOrFiles, textOrFile } from "../header-lines.ts";
import { duration, flag, text, texts, withDefault } from "../option.ts";
import { Progress } from "../progress.ts";
import { type Screen, visible } from "../screen.ts";
import { type Column, Table } from "../table.ts";

const options = {
  url: text({
    placeholder: "URL",
    description:
      "Where the API is, before the paths of the document: each POST and PATCH is sent there without a key.",
  }),
  param: texts({
    placeholder: "NAME=VALUE",
    description: "A value for {NAME} in a path. Nothing is sent to a path that lacks one.",
  }),
  header: texts({
    placeholder: "HEADER",
    description:
      'Sent with every request, as "name: value", or @FILE with one on each line: for credentials.',
  }),
  "key-header": withDefault(
    text({ placeholder: "NAME", description: "Where the API expects its key." }),
    "Idempotency-Key",
  ),
  timeout: withDefault(duration({ placeholder: "TIME", description: "For one answer." }), "10s"),
  yes: flag("Does not ask before it sends; needed where there is no terminal.", "y"),
  ...jsonOption,
};

export const audit = command({
  name: "audit",
  summary:
    "lists the endpoints of an OpenAPI document that change something, and whether they enforce the key",
  description:
    "Reads OpenAPI 3.0 and 3.1, as YAML or JSON, with references within the file. POST and PATCH need a key; PUT and DELETE are idempotent by " +
    "definition, and only listed. With --url each of them is sent once without a key, with the document's example or an empty body: an API that " +
    "does not enforce the key executes it. Exit code 5 if one accepts a request without a key or, where that could not be found out, does not " +
    "declare the header as required.",
  arguments: { synopsis: "FILE", min: 1, max: 1 },
  options,
  examples: [
    { command: "latchkey audit openapi.yaml", does: "what the document says" },
    {
      command:
        "latchkey audit openapi.yaml --url https://test.example.com/v1 --header @credentials --param id=42",
      does: "and what the API does",
    },
  ],
  async run(context, { options, args: [file = ""] }) {
    // Loaded here, because no other command needs it.
    const { audit: auditOperations, readOperations } = await import("../../conformance/audit/audit.ts");
    const content = await textOrFile(`@${file}`);
    const operations = readable(file, () => readOperations(content, { keyHeader: options["key-header"] }));
    const asking = await askOptions(options);
    if (asking !== undefined) await warn(context, operations, asking, options);
    const progress = new Progress(context.stderr, "operations");
    const audited = await auditOperations(operations, asking, (done) =>
      progress.show(done, operations.length),
    ).finally(() => progress.end());
    await context.answer({ operations: audited }, () =>
      auditText(context.stdout, audited, asking !== undefined),
    );
    const open = audited.filter(({ isEnforced }) => !isEnforced).length;
    if (open === 0) return;
    throw new Failure(
      exitCodes.failedChecks,
      "not-enforced",
      `${open} of ${audited.length} operations do not enforce the key`,
    );
  },
});

async function askOptions(given: Input<typeof options>["options"]): Promise<AskOptions | undefined> {
  if (given.url === undefined) {
    if (given.param.length > 0 || given.header.length > 0)
      throw usage("--param and --header need --url: nothing is sent without it");
    return undefined;
  }
  if (!URL.canParse(given.url) || !/^https?:$/.test(new URL(given.url).protocol)) {
    throw usage(`--url is "${visible(given.url)}" and must be an http or https URL`);
  }
  const parameters = given.param.map((one) => {
    const [, name, value] = /^([^=]+)=(.+)$/s.exec(one) ?? [];
    if (name === undefined || value === undefined)
      throw usage(`--param is "${visible(one)}" and must be NAME=VALUE`);
    return [name, value] as const;
  });
  return {
    url: new URL(given.url),
    headers: await headersOrFiles(given.header),
    parameters: Object.fromEntries(parameters),
    keyHeader: given["key-header"],
    timeoutMs: given.timeout,
  };
}

async function warn(
  context: Context,
  operations: readonly Operation[],
  asking: AskOptions,
  { yes }: { readonly yes: boolean },
): Promise<void> {
  const { addressOf } = await import("../../conformance/audit/asking.ts");
  const count = operations.filter((one) => one.needsKey && "url" in addressOf(one, asking)).length;
  if (count === 0) return;
  const warning = `${count} requests go to ${asking.url.host} without a key. An API that does not enforce it executes them.`;
  await context.note(warning);
  await confirm(context, "Send them?", { yes });
}

function readable<T>(file: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof Error && error.name === "AuditError") throw failed(`${file}: ${error.message}`);
    throw error;
  }
}

function auditText(screen: Screen, operations: readonly AuditedOperation[], isAsked: boolean): string {
  if (operations.length === 0) return "the document has no operation that changes something";
  const columns: readonly Column<AuditedOperation>[] = [
    { title: "METHOD", text: ({ method }) => method },
    { title: "PATH", text: ({ path }) => visible(path), widthMin: 12 },
    { title: "DECLARED", text: ({ key }) => (key === "none" ? "no" : key) },
    { title: "409", text: ({ documents }) => (documents[409] ? "yes" : "no"), isDispensable: true },
    { title: "422", text: ({ documents }) => (documents[422] ? "yes" : "no"), isDispensable: true },
    ...(isAsked ? [{ title: "WITHOUT A KEY", text: askedText, widthMin: 12 }] : []),
    {
      title: "ENFORCED",
      text: enforcedText,
      paint: (shown, padded, { isEnforced }) => (isEnforced ? padded : shown.paint("red", padded)),
    },
  ];
  return new Table(screen, columns).text(operations);
}

function enforcedText({ needsKey, isEnforced, asked }: AuditedOperation): string {
  if (!needsKey) return "needs none";
  if (!isEnforced) return "NO";
  return asked?.kind === "enforced" ? "yes" : "so it says";
}

function askedText({ asked }: { readonly asked: Enforcement | null }): string {
  switch (asked?.kind) {
    case undefined:
      return "";
    case "enforced":
      return `refused with ${asked.status}`;
    case "accepted":
      return `accepted with ${asked.status}`;
    case "cannot-tell":
      return visible(asked.reason);
    case "not-asked":
      return visible(`not sent: ${asked.reason}`);
    default:
      return asked satisfies never;
  }
}
