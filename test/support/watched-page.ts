import type { Browser, BrowserContextOptions, Page } from "playwright-core";

export interface WatchedPage {
  readonly page: Page;
  /** What the browser has complained of so far: errors, broken policies, requests to anybody else. */
  readonly complaints: readonly string[];
  close(): Promise<void>;
}

/** A page of our own, watched for everything that a page of ours must not do. */
export async function watchedPage(
  browser: Browser,
  options: {
    readonly origin: string;
    /** A request that fails is told as an error as well; whether one to this address may. */
    readonly mayFail?: (url: string) => boolean;
    readonly context?: BrowserContextOptions;
  },
): Promise<WatchedPage> {
  // Without a locale the browser takes the machine's, which may be no language at all ("C").
  const context = await browser.newContext({
    locale: "en-GB",
    viewport: { width: 1280, height: 800 },
    ...options.context,
  });
  const complaints: string[] = [];
  // As text, because what runs in the browser is not checked against its types here.
  await context.addInitScript({
    content: `addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) => {
      console.error("forbidden by the policy: " + violatedDirective + " " + blockedURI);
    });`,
  });
  context.on("page", (page) => {
    page.setDefaultTimeout(15_000);
    page.on("pageerror", (error) => complaints.push(`thrown: ${error.message}`));
    page.on("console", (message) => {
      if (message.type() !== "error" && message.type() !== "warning") return;
      const isFailure = message.text().startsWith("Failed to load resource");
      if (isFailure && options.mayFail?.(message.location().url)) return;
      complaints.push(`${message.text()} (${message.location().url})`);
    });
  });
  context.on("request", (request) => {
    if (!request.url().startsWith(`${options.origin}/`)) complaints.push(`asked elsewhere: ${request.url()}`);
  });
  return { page: await context.newPage(), complaints, close: () => context.close() };
}
