import { type ArrayParameter, type BatchParameter, isArray, writeArray } from "./arrays.ts";
import { MessageWriter } from "./message-writer.ts";

export type CallParameter = BatchParameter | string | Uint8Array | null;

/** There is one of it: it is used from beginning to end in one go, and its memory again and again. */
const writer = new MessageWriter();

/**
 * What a client sends to call a function, in Postgres's protocol: the statement, if it is to be prepared; the question
 * what it answers; its parameters; "go"; and that this is all.
 */
export function callMessages(
  name: string,
  parameters: readonly CallParameter[],
  { prepare, describe }: { readonly prepare: string | undefined; readonly describe: boolean },
): Buffer {
  writer.restart();
  if (prepare !== undefined) {
    writer.begin("P");
    writer.cstring(name);
    writer.cstring(prepare);
    writer.int16(0); // No types are said: they follow from the text.
    writer.end();
  }
  if (describe) {
    writer.begin("D");
    writer.byte("S");
    writer.cstring(name);
    writer.end();
  }
  writer.begin("B");
  writer.cstring(""); // the portal
  writer.cstring(name);
  writer.int16(parameters.length);
  for (const parameter of parameters) writer.int16(typeof parameter === "object" ? 1 : 0);
  writer.int16(parameters.length);
  for (const parameter of parameters) writeParameter(parameter);
  writer.int16(0); // Answers come as text: the driver reads nothing else.
  writer.end();
  writer.begin("E");
  writer.cstring("");
  writer.int32(0); // all rows
  writer.end();
  writer.begin("S");
  writer.end();
  return writer.bytes();
}

/** Whatever is an object is sent in Postgres's own binary form, the rest as text. */
function writeParameter(parameter: CallParameter): void {
  if (parameter === null || (isArray(parameter) && parameter.values === null)) writer.int32(-1);
  else if (isArray(parameter)) {
    const start = writer.beginValue();
    writeArray(writer, parameter.type, parameter.values ?? []);
    writer.endValue(start);
  } else writer.value(typeof parameter === "object" ? parameter : String(parameter));
}

/** An array as a parameter by itself. */
export function binaryArray({ type, values }: ArrayParameter): Buffer | null {
  if (values === null) return null;
  writer.restart();
  writeArray(writer, type, values);
  return writer.bytes();
}
