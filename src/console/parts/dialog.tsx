import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { RecordId } from "../../core/record.ts";
import { sentence } from "../loading.ts";

interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
}

/** The browser's own modal dialog: it traps the focus, closes on Escape and hides the rest from screen readers. */
export function Dialog({ title, onClose, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  // The browser tells of a close a moment later; by then the next dialog may be open, and must not be taken for this one.
  const isGone = useRef(false);
  useLayoutEffect(() => {
    const { current } = dialog;
    const before = document.activeElement;
    current?.showModal();
    return () => {
      isGone.current = true;
      current?.close();
      // What opened the dialog may be gone together with what it has changed.
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      aria-labelledby={titleId}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClose={() => {
        if (!isGone.current) onClose();
      }}
    >
      <h2 id={titleId}>{title}</h2>
      {children}
    </dialog>
  );
}

interface ActionDialogProps extends DialogProps {
  /** What the button that does it says. */
  readonly action: string;
  readonly isDangerous?: boolean;
  /** The record that is changed, so that nobody settles one and means another. */
  readonly about?: RecordId;
  /** Does it; a rejection is shown, and the dialog stays. */
  readonly onAction: () => Promise<void>;
}

/** Asks before something is changed, and stays open with the reason if it is refused. */
export function ActionDialog({ action, isDangerous = false, about, onAction, ...props }: ActionDialogProps) {
  const [isBusy, setIsBusy] = useState(false);
  const [refusal, setRefusal] = useState<string>();
  const isOpen = useRef(true);
  useEffect(() => {
    isOpen.current = true;
    return () => {
      isOpen.current = false;
    };
  }, []);
  const submit = async (event: Event) => {
    event.preventDefault();
    setIsBusy(true);
    setRefusal(undefined);
    try {
      await onAction();
    } catch (error) {
      if (isOpen.current) setRefusal(sentence(error));
    }
    if (isOpen.current) setIsBusy(false);
  };
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      <form onSubmit={(event) => void submit(event)}>
        {about !== undefined && (
          <p class="dialog-about">
            <code>{about.key}</code> of {about.scope}
          </p>
        )}
        {props.children}
        <p class="refusal" role="alert">
          {refusal}
        </p>
        <div class="dialog-buttons">
          <button type="button" onClick={props.onClose}>
            Cancel
          </button>
          <button type="submit" class={isDangerous ? "danger" : "primary"} disabled={isBusy}>
            {isBusy ? "One moment…" : action}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
