import { createDecipheriv, createSecretKey } from "node:crypto";
import { describe, expect, it } from "vitest";
import type { HeaderPair, StoredResponse } from "../../src/core/response.ts";
import { envelopeOf, open, sealingKey } from "../../src/privacy/envelope.ts";
import { openedResponse, sealedResponse, sealResponse } from "../../src/privacy/sealing.ts";

const secret = Buffer.alloc(32, 7);
const tag = Buffer.from("0102030405060708", "hex");
const key = sealingKey("first", tag, createSecretKey(secret));
const id = { scope: "acme", key: "k-1" };
const bodyBytesMax = 10_000_000;

const json: HeaderPair = ["content-type", "application/json"];

function answer(headers: readonly HeaderPair[], body: string): StoredResponse {
  return { kind: "full", status: 201, headers, body: Buffer.from(body) };
}

function opened(response: StoredResponse): StoredResponse {
  const sealed = sealedResponse(id, response) ?? expect.fail("it is not sealed");
  return openedResponse(response, open(envelopeOf(sealed.envelope), key, sealed.about));
}

const sealAndOpen = (response: StoredResponse) => opened(sealResponse(key, id, response, bodyBytesMax));

describe("a sealed answer", () => {
  it("opens as it was sealed before answers were put together in one place", () => {
    const sealedThen =
      "AQVmaXJzdAgBAgMEBQYHCL5NRLCUPC89r6POP4_CARb3Zy8p5RdKpDDWX64CVvBYD_TnUWnH3VkXrSzvdh6OhRIDgGpUuidS8gW4NQy7V3fGLW2L" +
      "bOk-IetLXGYmp0yq6q__EVQr-gqVqrR6qOVt-niKLsdozKThG5clavxAv2jF8M8xh7EpPsY";
    const body = Buffer.from(sealedThen, "base64url");
    expect(opened({ kind: "full", status: 201, headers: [[":sealed", "1"]], body })).toEqual(
      answer([json, ["location", "/charges/é"]], '{"id":"ch_1"}'),
    );
  });

  it("is version, key, secret's tag, IV, ciphertext and tag, and tied to its scope, key and status", () => {
    const sealed = sealResponse(key, id, answer([json], "é"), bodyBytesMax);
    if (sealed.kind !== "full") throw new Error("it was not kept");
    const bytes = Buffer.from(sealed.body);
    const head = Buffer.concat([Buffer.from([1, 5]), Buffer.from("first"), Buffer.from([8]), tag]);
    expect(bytes.subarray(0, head.length)).toEqual(head);
    const textAt = head.length + 12;
    const decipher = createDecipheriv("aes-256-gcm", secret, bytes.subarray(head.length, textAt));
    decipher.setAAD(Buffer.from("8:response4:acme3:k-13:201"));
    decipher.setAuthTag(bytes.subarray(-16));
    const plain = Buffer.concat([decipher.update(bytes.subarray(textAt, -16)), decipher.final()]);
    const text = JSON.stringify({ headers: [json] });
    expect(plain.readUInt32BE()).toBe(text.length);
    expect(plain.toString("utf8", 4)).toBe(`${text}é`);
  });

  it("has its own headers, whatever those of the answer before were", () => {
    const kinds: (readonly HeaderPair[])[] = [
      [json],
      [json],
      [],
      [["content-type", "text/plain"]],
      [["etag", "application/json"]],
      [json, ["location", "/charges/1"]],
      [["location", "/charges/1"], json],
      [json, ["location", "/charges/2"]],
      [json],
    ];
    for (const [number, headers] of kinds.entries()) {
      expect(sealAndOpen(answer(headers, `${number}`))).toEqual(answer(headers, `${number}`));
    }
  });

  it("has the headers that it had when it was sealed, also where whoever made them changes them", () => {
    const location: [string, string] = ["location", "/charges/1"];
    const headers: HeaderPair[] = [location];
    sealAndOpen(answer(headers, "first"));
    location[1] = "/charges/2";
    expect(sealAndOpen(answer(headers, "second"))).toEqual(answer([["location", "/charges/2"]], "second"));
    headers.push(json);
    expect(sealAndOpen(answer(headers, "third"))).toEqual(
      answer([["location", "/charges/2"], json], "third"),
    );
  });

  it("is whole, however large or small it is", () => {
    for (const length of [0, 1, 65_000, 65_536, 200_000, 3, 65_500, 0]) {
      const body = "x".repeat(length);
      expect(sealAndOpen(answer([json], body))).toEqual(answer([json], body));
    }
  });

  it("never has the IV of another", () => {
    const ivs = Array.from({ length: 1_000 }, () => {
      const sealed = sealResponse(key, id, answer([json], "x"), bodyBytesMax);
      return sealed.kind === "full" ? Buffer.from(sealed.body.subarray(16, 28)).toString("hex") : "";
    });
    expect(new Set(ivs).size).toBe(1_000);
  });
});
