import { useState } from "preact/hooks";

interface SignInProps {
  readonly isAsking: boolean;
  readonly refusal: string | undefined;
  readonly onToken: (token: string) => Promise<void>;
}

export function SignIn({ isAsking, refusal, onToken }: SignInProps) {
  const [token, setToken] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    const trimmed = token.trim();
    if (trimmed !== "") void onToken(trimmed);
  };
  return (
    <main class="sign-in">
      <form class="card" onSubmit={submit}>
        <h1>Latchkey console</h1>
        <label>
          Operator token
          <input
            type="password"
            autocomplete="current-password"
            value={token}
            onInput={(event) => setToken(event.currentTarget.value)}
            autofocus
          />
        </label>
        <button type="submit" class="primary" disabled={isAsking}>
          {isAsking ? "One moment…" : "Sign in"}
        </button>
        <p class="refusal" role="alert">
          {refusal}
        </p>
        <p class="muted">
          The token is kept for this tab only. What you change is written into the audit trail under the name
          that belongs to it.
        </p>
      </form>
    </main>
  );
}
