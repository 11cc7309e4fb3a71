/** What a Markdown page points to, and what can be pointed to within it, as GitHub renders it. */
export interface MarkdownPage {
  /** Targets of links and images, as they are written. */
  readonly targets: readonly string[];
  readonly anchors: ReadonlySet<string>;
}

export function readMarkdown(text: string): MarkdownPage {
  const lines = withoutFences(text);
  const prose = lines.join("\n").replaceAll(codeSpan, "");
  return {
    targets: [inlineTarget, definedTarget, htmlTarget].flatMap((pattern) =>
      [...prose.matchAll(pattern)].map(([, target = ""]) => target),
    ),
    anchors: new Set([
      ...slugs(lines.flatMap((line) => /^ {0,3}#{1,6}[ \t]+(.+?)(?:[ \t]+#+)?[ \t]*$/.exec(line)?.[1] ?? [])),
      ...[...prose.matchAll(/<a\s[^>]*?(?:id|name)="([^"]+)"/g)].map(([, id = ""]) => id),
    ]),
  };
}

/** What is shown as code links to nothing, and its comments are no headings. */
function withoutFences(text: string): string[] {
  let fence: string | undefined;
  return text.split("\n").filter((line) => {
    const mark = /^\s*(`{3,}|~{3,})/.exec(line)?.[1];
    if (fence === undefined) {
      fence = mark;
      return mark === undefined;
    }
    if (mark?.startsWith(fence)) fence = undefined;
    return false;
  });
}

const codeSpan = /(`+)(?!`).*?(?<!`)\1(?!`)/g;
const inlineTarget = /\]\(\s*<?([^)\s>]+)>?(?:\s+["'(][^)]*)?\s*\)/g;
const definedTarget = /^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)/gm;
const htmlTarget = /<(?:a|img|source)\s[^>]*?(?:href|src|srcset)="([^"\s]+)/g;

/** Lower case, without punctuation, spaces as hyphens; what comes again gets a number. */
function slugs(headings: readonly string[]): string[] {
  const taken = new Set<string>();
  return headings.map((heading) => {
    const shown = heading.replaceAll(/!?\[([^\]]*)\]\([^)]*\)/g, "$1").replaceAll(/<[^>]+>/g, "");
    const slug = shown
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{M}\p{N}\p{Pc}\- ]/gu, "")
      .replaceAll(" ", "-");
    let free = slug;
    for (let number = 1; taken.has(free); number += 1) free = `${slug}-${number}`;
    taken.add(free);
    return free;
  });
}
