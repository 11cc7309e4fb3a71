import { useState } from "preact/hooks";
import { useSettling, type VerdictProps } from "../settling.ts";
import { ActionDialog } from "./dialog.tsx";
import { ReasonField } from "./reason-field.tsx";

export function NotExecutedDialog(props: VerdictProps) {
  const { record, onClose } = props;
  const settle = useSettling(props);
  const [reason, setReason] = useState("");
  const open = record.phases.filter(({ state }) => state === "begun").map(({ name }) => name);
  const tell = () =>
    settle(
      { kind: "not-executed", reason: reason.trim() },
      `Settled: the next request with the key ${record.key} is executed.`,
    );
  return (
    <ActionDialog
      title="It was not executed"
      action="It may be tried again"
      isDangerous
      about={record}
      onAction={tell}
      onClose={onClose}
    >
      <p>
        The key is free again: the next request, or a worker that has kept this one, executes it as attempt{" "}
        {record.attempt + 1}. <b>If it did happen after all, it happens twice.</b> Say so only if it is
        proven.
      </p>
      {open.length > 0 && (
        <p>
          {open.join(", ")} {open.length === 1 ? "counts" : "count"} as not having happened and will be called
          again; phases that are done are skipped.
        </p>
      )}
      <ReasonField words="How is it known? For the audit trail" value={reason} onChange={setReason} />
    </ActionDialog>
  );
}
