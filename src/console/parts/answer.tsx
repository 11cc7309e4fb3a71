import type { ResponseView } from "../../admin/views.ts";
import { bytes, notShownWords, pretty } from "../words.ts";
import { Copy } from "./copy.tsx";

/** The answer that retries get, as text and never as anything else. */
export function Answer({ response }: { readonly response: ResponseView | null }) {
  return (
    <section class="card" aria-labelledby="answer">
      <div class="section-head">
        <h2 id="answer">
          Answer{" "}
          {response !== null && (
            <b class={`status status-${Math.floor(response.status / 100)}`}>{response.status}</b>
          )}
        </h2>
        {response !== null && response.bodyBytes !== null && (
          <span class="muted">{bytes(response.bodyBytes)}</span>
        )}
        {response?.kind === "full" && <Copy text={response.body} what="the body" />}
      </div>
      <Content response={response} />
    </section>
  );
}

function Content({ response }: { readonly response: ResponseView | null }) {
  if (response === null) return <p class="empty">There is no answer, or not any more.</p>;
  if (response.kind === "omitted")
    return <p class="not-shown">Not shown. {notShownWords[response.because]}</p>;
  const { headers, body, encoding, isCut } = response;
  return (
    <>
      <table class="headers" aria-label="Headers of the answer">
        <tbody>
          {headers.map(([name, value]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>{value}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {encoding === "base64" && <p class="not-shown">The body is not text. Its bytes, as base64:</p>}
      {body === "" ? (
        <p class="empty">The body is empty.</p>
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
        <pre class="body" tabIndex={0}>
          {encoding === "utf8" && !isCut ? pretty(body) : body}
        </pre>
      )}
      {isCut && <p class="not-shown">Only the beginning is shown.</p>}
    </>
  );
}
