const bytesAtFirst = 64 * 1024;
/** What a batch of large answers needed is given back. */
const bytesKept = 1024 * 1024;

const shortLengthMax = 64;
const asciiEnd = 0x80;

/**
 * Writes messages of Postgres's protocol, one behind the other. There is one place where they are put together, used
 * again and again; what is sent is a copy.
 */
export class MessageWriter {
  #bytes = Buffer.allocUnsafe(bytesAtFirst);
  #at = 0;
  #messageAt = 0;

  /** Whatever was written before, and its bytes not taken, is forgotten. */
  restart(): void {
    this.#at = 0;
  }

  begin(type: string): void {
    this.byte(type);
    this.#messageAt = this.#at;
    this.int32(0);
  }

  end(): void {
    this.#bytes.writeInt32BE(this.#at - this.#messageAt, this.#messageAt);
  }

  byte(character: string): void {
    this.#room(1);
    this.#bytes[this.#at] = character.charCodeAt(0);
    this.#at += 1;
  }

  int16(value: number): void {
    this.#room(2);
    this.#at = this.#bytes.writeInt16BE(value, this.#at);
  }

  int32(value: number): void {
    this.#room(4);
    this.#at = this.#bytes.writeInt32BE(value, this.#at);
  }

  float64(value: number): void {
    this.#room(8);
    this.#at = this.#bytes.writeDoubleBE(value, this.#at);
  }

  cstring(text: string): void {
    this.#room(3 * text.length + 1);
    this.#at += this.#bytes.write(text, this.#at);
    this.#bytes[this.#at] = 0;
    this.#at += 1;
  }

  /** With its length before it. */
  value(value: string | Uint8Array): void {
    const start = this.beginValue();
    if (typeof value === "string") {
      this.#room(3 * value.length);
      if (!this.#isWrittenHere(value)) this.#at += this.#bytes.write(value, this.#at);
    } else {
      this.#room(value.byteLength);
      this.#bytes.set(value, this.#at);
      this.#at += value.byteLength;
    }
    this.endValue(start);
  }

  /** Names and keys are short and ASCII: to write them down takes less than to ask for it. */
  #isWrittenHere(text: string): boolean {
    const { length } = text;
    if (length > shortLengthMax) return false;
    const bytes = this.#bytes;
    const at = this.#at;
    for (let i = 0; i < length; i += 1) {
      const unit = text.charCodeAt(i);
      if (unit >= asciiEnd) return false;
      bytes[at + i] = unit;
    }
    this.#at = at + length;
    return true;
  }

  beginValue(): number {
    const start = this.#at;
    this.int32(0);
    return start;
  }

  endValue(start: number): void {
    this.#bytes.writeInt32BE(this.#at - start - 4, start);
  }

  bytes(): Buffer {
    const bytes = Buffer.from(this.#bytes.subarray(0, this.#at));
    if (this.#bytes.length > bytesKept) this.#bytes = Buffer.allocUnsafe(bytesAtFirst);
    return bytes;
  }

  #room(size: number): void {
    if (this.#at + size <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafe(2 * Math.max(this.#bytes.length, this.#at + size));
    larger.set(this.#bytes.subarray(0, this.#at));
    this.#bytes = larger;
  }
}
