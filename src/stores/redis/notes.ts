import type { Note, NoteAnswer, Notes, NotesReading, NotesWriting, NoteWrite } from "../../core/notes.ts";
import type { RedisArgument, RedisReply } from "./client.ts";
import { bufferOfReply, listOf, type Server } from "./server.ts";
import { durationMs } from "./wire.ts";

/** Notes, each a key of its own that the server lets go when its time is over. */
export class RedisNotes implements Notes {
  readonly #server: Server;

  constructor(server: Server) {
    this.#server = server;
  }

  async read(names: readonly string[]): Promise<NotesReading> {
    const notes: (Note | undefined)[] = names.map(() => undefined);
    const now = await this.#ask(names, async (keys, nths) => {
      const [time, ...found] = listOf(await this.#server.ask("read", keys, []));
      for (const [at, nth] of nths.entries()) notes[nth] = noteOf(found[at]);
      return Number(time);
    });
    return { notes, now };
  }

  async write(writes: readonly NoteWrite[]): Promise<NotesWriting> {
    const answers: NoteAnswer[] = [];
    const now = await this.#ask(
      writes.map(({ name }) => name),
      async (keys, nths) => {
        const args = nths.flatMap((nth) => argumentsOf(writes[nth]));
        const [time, ...told] = listOf(await this.#server.write("writeNotes", keys, args));
        for (const [at, nth] of nths.entries()) answers[nth] = answerOf(told[2 * at], told[2 * at + 1]);
        return Number(time);
      },
    );
    return { answers, now };
  }

  /** On one server everything goes at once; in a cluster each part that is in one slot goes by itself. */
  async #ask(
    names: readonly string[],
    ask: (keys: readonly string[], nths: readonly number[]) => Promise<number>,
  ): Promise<number> {
    const { names: keyNames, link } = this.#server;
    // Who asks for nothing is told the time all the same.
    if (names.length === 0) {
      const [time] = listOf(await this.#server.ask("read", [keyNames.noteKeyOf("")], []));
      return Number(time);
    }
    const parts: { readonly tag: string; readonly keys: string[]; readonly nths: number[] }[] = [];
    for (const [nth, name] of names.entries()) {
      const key = keyNames.noteKeyOf(name);
      const tag = link.isCluster ? key.slice(0, keyNames.tags[0]?.length) : "";
      let part = parts.find((each) => each.tag === tag && each.keys.length < notesMax);
      if (part === undefined) {
        part = { tag, keys: [], nths: [] };
        parts.push(part);
      }
      part.keys.push(key);
      part.nths.push(nth);
    }
    return Math.max(...(await Promise.all(parts.map(({ keys, nths }) => ask(keys, nths)))));
  }
}

/** Nobody else is served while a script runs. */
const notesMax = 200;

function argumentsOf(write: NoteWrite | undefined): RedisArgument[] {
  const { expected, note, ttlMs = Number.POSITIVE_INFINITY } = write ?? {};
  return [
    expected === undefined ? "" : `=${expected}`,
    ttlMs === Number.POSITIVE_INFINITY ? "" : String(durationMs(ttlMs)),
    note === undefined ? "" : packNote(note),
  ];
}

function packNote({ version, value }: Note): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(Buffer.byteLength(version));
  return Buffer.concat([length, Buffer.from(version), Buffer.from(value)]);
}

function noteOf(reply: RedisReply | undefined): Note | undefined {
  if (reply === null || reply === undefined) return undefined;
  const packed = bufferOfReply(reply);
  const valueFrom = 2 + packed.readUInt16BE(0);
  return { version: packed.toString("utf8", 2, valueFrom), value: packed.toString("utf8", valueFrom) };
}

function answerOf(written: RedisReply | undefined, current: RedisReply | undefined): NoteAnswer {
  return written === 1 ? { kind: "written" } : { kind: "conflict", note: noteOf(current) };
}
