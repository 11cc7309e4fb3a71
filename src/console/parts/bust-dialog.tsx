import { useState } from "preact/hooks";
import type { RecordView } from "../../admin/views.ts";
import { useConsole } from "../context.ts";
import { ActionDialog } from "./dialog.tsx";
import { ReasonField } from "./reason-field.tsx";

interface BustDialogProps {
  readonly record: RecordView;
  readonly onClose: () => void;
  readonly onChanged: () => void;
}

export function BustDialog({ record, onClose, onChanged }: BustDialogProps) {
  const { api, say } = useConsole();
  const [reason, setReason] = useState("");
  const { scope, key, attempt } = record;
  const bust = async () => {
    await api.bust({ scope, key, attempt, reason: reason.trim() });
    say({ kind: "done", text: `Busted: the next request with the key ${key} is executed.` });
    onChanged();
    onClose();
  };
  return (
    <ActionDialog
      title="Bust this key?"
      action="Bust it"
      isDangerous
      about={record}
      onAction={bust}
      onClose={onClose}
    >
      <p>
        The stored answer is taken away. <b>The next request with this key is executed again</b>, as attempt{" "}
        {attempt + 1}: if the first one moved money, so will that one. Nothing that was done is undone.
      </p>
      <ReasonField words="Reason, for the audit trail" value={reason} onChange={setReason} />
    </ActionDialog>
  );
}
