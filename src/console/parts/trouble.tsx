/** What could not be loaded, and why. What is on the page already stays. */
export function Trouble({
  error,
  retry,
}: {
  readonly error: string | undefined;
  readonly retry: () => void;
}) {
  if (error === undefined) return null;
  return (
    <p class="trouble" role="alert">
      {error}{" "}
      <button type="button" onClick={retry}>
        Try again
      </button>
    </p>
  );
}
