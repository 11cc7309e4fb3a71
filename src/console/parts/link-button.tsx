import type { ComponentChildren } from "preact";

/** A link that looks like a button, and stays in its place where it leads nowhere. */
export function LinkButton(props: {
  readonly href: string | undefined;
  readonly children: ComponentChildren;
}) {
  if (props.href === undefined) return <span class="button none">{props.children}</span>;
  return (
    <a class="button" href={props.href}>
      {props.children}
    </a>
  );
}
