import { useState } from "preact/hooks";
import { useSettling, type VerdictProps } from "../settling.ts";
import { jsonIn } from "../words.ts";
import { ActionDialog } from "./dialog.tsx";

interface Header {
  readonly name: string;
  readonly value: string;
}

/** It was executed, with success or with a refusal that counts: the operator writes the answer that retries get. */
export function ExecutedDialog(props: VerdictProps) {
  const { record, onClose } = props;
  const settle = useSettling(props);
  const [status, setStatus] = useState("201");
  const [headers, setHeaders] = useState<readonly Header[]>([
    { name: "content-type", value: "application/json" },
  ]);
  const [body, setBody] = useState("");
  const change = (index: number, changed: Partial<Header>) =>
    setHeaders((before) => before.map((header, at) => (at === index ? { ...header, ...changed } : header)));

  const tell = () => {
    const isJson = headers.some(({ name, value }) => /^content-type$/i.test(name) && /\bjson\b/i.test(value));
    if (isJson && body.trim() !== "") jsonIn(body, "The body");
    const named = headers.filter(({ name }) => name.trim() !== "");
    const response = {
      status: Number(status),
      headers: Object.fromEntries(named.map(({ name, value }) => [name.trim(), value])),
      // As text it is kept byte for byte.
      ...(body === "" ? {} : { body }),
    };
    return settle(
      { kind: "completed", response },
      `Settled: every retry of ${record.key} gets ${status}, and nothing is executed.`,
    );
  };
  return (
    <ActionDialog
      title="It was executed"
      action="Settle with this answer"
      about={record}
      onAction={async () => tell()}
      onClose={onClose}
    >
      <p>
        The record is completed with the answer below.{" "}
        <b>Every retry gets it, and nothing is executed again.</b> Write down what the first request would
        have been answered with, also if that was a refusal.
      </p>
      <label class="short">
        Status
        <input
          type="number"
          min={200}
          max={599}
          required
          value={status}
          onInput={(event) => setStatus(event.currentTarget.value)}
        />
      </label>
      <fieldset>
        <legend>Headers</legend>
        {headers.map((header, index) => (
          <div class="header-row" key={index}>
            <input
              aria-label={`Name of header ${index + 1}`}
              placeholder="name"
              value={header.name}
              onInput={(event) => change(index, { name: event.currentTarget.value })}
            />
            <input
              aria-label={`Value of header ${index + 1}`}
              placeholder="value"
              value={header.value}
              onInput={(event) => change(index, { value: event.currentTarget.value })}
            />
          </div>
        ))}
        <button type="button" onClick={() => setHeaders((before) => [...before, { name: "", value: "" }])}>
          Add a header
        </button>
      </fieldset>
      <label>
        Body
        <textarea
          rows={7}
          spellcheck={false}
          value={body}
          onInput={(event) => setBody(event.currentTarget.value)}
        />
      </label>
    </ActionDialog>
  );
}
