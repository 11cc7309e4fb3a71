import type { PlaygroundView } from "../../src/demo/trace.ts";

/** What the playground's processes have to tell, without the page. */
export async function playgroundView(url: string): Promise<PlaygroundView> {
  const ending = new AbortController();
  const { body } = await fetch(`${url}/api/stream`, { signal: ending.signal });
  if (body === null) throw new Error("the stream has no body");
  let text = "";
  for await (const chunk of body.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    const data = /^data: (.*)\n\n/m.exec(text)?.[1];
    if (data === undefined) continue;
    ending.abort();
    return JSON.parse(data) as PlaygroundView;
  }
  throw new Error("the stream ended before it told anything");
}
