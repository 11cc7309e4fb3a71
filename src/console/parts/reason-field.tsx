interface ReasonFieldProps {
  /** What is asked. */
  readonly words: string;
  readonly value: string;
  readonly onChange: (value: string) => void;
}

/** Why an operator does something. It has to be said, because the audit trail is read when nobody remembers. */
export function ReasonField({ words, value, onChange }: ReasonFieldProps) {
  return (
    <label>
      {words}
      <input
        required
        maxLength={500}
        value={value}
        onInput={(event) => onChange(event.currentTarget.value)}
      />
    </label>
  );
}
