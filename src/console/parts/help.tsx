import { Dialog } from "./dialog.tsx";

const keys: readonly (readonly [keys: string, does: string])[] = [
  ["/", "search by key"],
  ["g o", "overview"],
  ["g r", "records"],
  ["g u", "unknown outcomes"],
  ["g d", "dead letters"],
  ["g a", "audit trail"],
  ["Tab, Enter", "reach and use everything"],
  ["Esc", "close a dialog"],
  ["?", "this help"],
];

export function Help({ onClose }: { readonly onClose: () => void }) {
  return (
    <Dialog title="Keyboard" onClose={onClose}>
      <dl class="keys">
        {keys.map(([key, does]) => (
          <div key={key}>
            <dt>
              {key.split(/(?<!,) /).map((part) => (
                <kbd key={part}>{part}</kbd>
              ))}
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
      <div class="dialog-buttons">
        <button type="button" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
