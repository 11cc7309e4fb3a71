import { writeFile } from "node:fs/promises";
import {
  CannotVerifyError,
  type Report,
  reportHtml,
  reportJunit,
  reportText,
  type VerifyOptions,
  VerifyOptionsError,
  verify as verifyApi,
} from "../../conformance/conformance.ts";
import { command, type Input, jsonOption } from "../command.ts";
import { exitCodes, Failure, failed, usage } from "../failure.ts";
import { headersOrFiles, textOrFile } from "../header-lines.ts";
import { choice, duration, flag, text, texts, wholeNumber, withDefault } from "../option.ts";
import { Progress } from "../progress.ts";

const options = {
  method: withDefault(text({ placeholder: "METHOD", description: "How the endpoint is called." }), "POST"),
  body: text({
    placeholder: "BODY",
    description:
      "A valid body, or @FILE. {{n}} in it stands for a number that is never the same, where two requests must not be alike.",
  }),
  "other-body": text({
    placeholder: "BODY",
    description: "A valid body that differs, or @FILE; needed to see misuse, unless --body has {{n}} in it.",
  }),
  "invalid-body": text({
    placeholder: "BODY",
    description: "A body that the API refuses, or @FILE.",
    byDefault: "{}",
  }),
  header: texts({
    placeholder: "HEADER",
    description:
      'Sent with every request, as "name: value", or @FILE with one on each line: for credentials.',
  }),
  "other-header": texts({
    placeholder: "HEADER",
    description: "The same for another caller, who must never see the first one's answers.",
  }),
  "other-url": text({ placeholder: "URL", description: "Another endpoint that takes the same body." }),
  "key-header": withDefault(
    text({ placeholder: "NAME", description: "Where the API expects its key." }),
    "Idempotency-Key",
  ),
  "quote-keys": flag("Sends keys in double quotes, to an API that takes them in no other way."),
  profile: withDefault(
    choice(["ietf", "stripe", "acp"], { placeholder: "PROFILE", description: "By whose rules." }),
    "ietf",
  ),
  concurrency: withDefault(
    wholeNumber({ placeholder: "N", description: "How many requests are sent at once.", min: 2, max: 1000 }),
    "20",
  ),
  timeout: withDefault(
    duration({ placeholder: "TIME", description: "For one answer, and for a key to be settled." }),
    "10s",
  ),
  pause: withDefault(
    duration({ placeholder: "TIME", description: "Between an answer and the replay after a pause." }),
    "1s",
  ),
  effects: text({
    placeholder: "URL",
    description:
      'Counts what was done under a key, which stands for {key} in it: answers with a number, a list, or {"count": number}.',
  }),
  report: texts({
    placeholder: "FILE",
    description: "Also writes the report there: .html, .xml (JUnit), .json or .txt.",
    isFile: true,
  }),
  verbose: flag("Shows the requests of every check, not only of those that failed."),
  ...jsonOption,
};

export const verify = command({
  name: "verify",
  summary: "tells from outside whether an API keeps the contract, whatever it is written in",
  description:
    "Sends some seventy requests, about twenty of which do what the endpoint does: use a test environment. Exit code 5 if a check failed; " +
    "warnings are allowed. Without --effects nobody can see a second execution that answers like the first, and the report says where that " +
    "matters. docs/conformance.md has every check.",
  arguments: { synopsis: "URL", min: 1, max: 1 },
  options,
  examples: [
    {
      command:
        "latchkey verify https://test.example.com/charges --header @credentials --body '{\"amount\":{{n}}}'",
      does: "a report for people",
    },
    {
      command:
        "latchkey verify http://127.0.0.1:3000/charges --body @body.json --report verify.xml --report verify.html",
      does: "also for a build server, and for those who were not there",
    },
  ],
  async run(context, { options, args: [url = ""] }) {
    const files = options.report.map((file) => [file, rendererOf(file)] as const);
    const progress = new Progress(context.stderr, "checks");
    const report = await verifyApi({
      ...(await verifyOptions(url, options)),
      onProgress: ({ done, total }) => progress.show(done, total),
    })
      .catch((error) => {
        if (error instanceof VerifyOptionsError) throw usage(error.message);
        if (error instanceof CannotVerifyError) throw failed(error.message, "cannot-verify");
        throw error;
      })
      .finally(() => progress.end());
    for (const [file, render] of files) await written(file, render(report));
    const { stdout } = context;
    await context.answer(report, () =>
      reportText(report, { paint: (style, shown) => stdout.paint(style, shown), isVerbose: options.verbose }),
    );
    const { fail } = report.counts;
    if (fail === 0) return;
    const counted = fail === 1 ? "1 check" : `${fail} checks`;
    throw new Failure(
      exitCodes.failedChecks,
      "failed-checks",
      `${counted} of ${report.checks.length} failed`,
    );
  },
});

async function verifyOptions(url: string, given: Input<typeof options>["options"]): Promise<VerifyOptions> {
  const {
    body,
    "other-body": otherBody,
    "invalid-body": invalidBody,
    "other-url": otherUrl,
    effects,
  } = given;
  const template = body === undefined ? undefined : await textOrFile(body);
  const isTemplate = template?.includes(placeholder);
  return {
    url,
    method: given.method,
    headers: await headersOrFiles(given.header),
    ...(template === undefined
      ? {}
      : { body: isTemplate ? (n) => template.replaceAll(placeholder, String(n)) : template }),
    ...(otherBody === undefined ? {} : { otherBody: await textOrFile(otherBody) }),
    ...(invalidBody === undefined ? {} : { invalidBody: await textOrFile(invalidBody) }),
    ...(given["other-header"].length === 0
      ? {}
      : { otherHeaders: await headersOrFiles(given["other-header"], "--other-header") }),
    ...(otherUrl === undefined ? {} : { otherUrl }),
    ...(effects === undefined ? {} : { effects }),
    keyHeader: given["key-header"],
    quoteKeys: given["quote-keys"],
    profile: given.profile,
    concurrency: given.concurrency,
    timeoutMs: given.timeout,
    pauseMs: given.pause,
  };
}

const placeholder = "{{n}}";

const renderers: Readonly<Record<string, (report: Report) => string>> = {
  html: reportHtml,
  xml: reportJunit,
  json: (report) => `${JSON.stringify(report, null, 2)}\n`,
  txt: (report) => reportText(report),
};

/** Known before anything is sent: who has waited for a report wants to have it. */
function rendererOf(file: string): (report: Report) => string {
  const [, ending = ""] = /\.([a-z]+)$/.exec(file) ?? [];
  const render = Object.hasOwn(renderers, ending) ? renderers[ending] : undefined;
  if (render !== undefined) return render;
  throw usage(`--report is "${file}" and must end in one of: ${Object.keys(renderers).join(", ")}`);
}

async function written(file: string, content: string): Promise<void> {
  try {
    await writeFile(file, content);
  } catch (error) {
    throw failed(`${file} cannot be written: ${(error as Error).message}`);
  }
}
