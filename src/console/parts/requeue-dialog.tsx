import type { DeadLetterView } from "../../admin/views.ts";
import { useConsole } from "../context.ts";
import { counted } from "../words.ts";
import { ActionDialog } from "./dialog.tsx";

interface RequeueDialogProps {
  readonly letters: readonly DeadLetterView[];
  readonly onClose: () => void;
  readonly onChanged: () => void;
}

const namedMax = 8; // Enough to see what one is about to do.

export function RequeueDialog({ letters, onClose, onChanged }: RequeueDialogProps) {
  const { api, say } = useConsole();
  const requeue = async () => {
    const { requeued } = await api.requeue({ ids: letters.map(({ id }) => id) });
    const others = letters.length - requeued;
    say({
      kind: requeued === 0 ? "refused" : "done",
      text:
        `${counted(requeued, "message waits", "messages wait")} for delivery again.` +
        (others === 0 ? "" : ` ${counted(others, "was", "were")} not dead any more.`),
    });
    onChanged();
    onClose();
  };
  return (
    <ActionDialog
      title={letters.length === 1 ? "Requeue this message?" : `Requeue ${letters.length} messages?`}
      action="Requeue"
      onAction={requeue}
      onClose={onClose}
    >
      <p>
        {letters.length === 1 ? "It is" : "They are"} delivered as soon as a relay comes by, with all attempts
        again. Consumers that deduplicate on the message's key see a delivery that they have had before as the
        same one.
      </p>
      <ul class="dialog-about">
        {letters.slice(0, namedMax).map(({ id, topic, key }) => (
          <li key={id}>
            {topic} <code>{key}</code>
          </li>
        ))}
        {letters.length > namedMax && <li>and {letters.length - namedMax} more</li>}
      </ul>
    </ActionDialog>
  );
}
