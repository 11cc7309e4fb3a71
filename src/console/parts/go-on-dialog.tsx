import { useState } from "preact/hooks";
import { useSettling, type VerdictProps } from "../settling.ts";
import { jsonIn } from "../words.ts";
import { ActionDialog } from "./dialog.tsx";

/** An external call whose outcome was in doubt has happened: the operation goes on with what it came to. */
export function GoOnDialog(props: VerdictProps) {
  const { record, onClose } = props;
  const settle = useSettling(props);
  const open = record.phases.filter(({ state }) => state === "begun");
  const [phase, setPhase] = useState(open[0]?.name ?? "");
  const [result, setResult] = useState("{}");
  const [reference, setReference] = useState(open[0]?.reference ?? "");
  const tell = async () => {
    const known = reference.trim() === "" ? {} : { reference: reference.trim() };
    await settle(
      { kind: "effect-done", phase, result: jsonIn(result, "The result"), ...known },
      `Settled: the operation of ${record.key} goes on after ${phase}.`,
    );
  };
  return (
    <ActionDialog
      title="The call happened: go on"
      action="Go on from there"
      about={record}
      onAction={tell}
      onClose={onClose}
    >
      <p>
        The call counts as done, and the operation goes on after it as attempt {record.attempt + 1}, with the
        next request or a worker that has kept this one. <b>The call itself is not made again.</b>
      </p>
      <label>
        Which call
        <select value={phase} onChange={(event) => setPhase(event.currentTarget.value)}>
          {open.map(({ name }) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      <label>
        Its result, as JSON: what the handler gets from the call
        <textarea
          rows={5}
          required
          spellcheck={false}
          value={result}
          onInput={(event) => setResult(event.currentTarget.value)}
        />
      </label>
      <label>
        The provider's reference, if there is one
        <input
          value={reference}
          spellcheck={false}
          onInput={(event) => setReference(event.currentTarget.value)}
        />
      </label>
    </ActionDialog>
  );
}
