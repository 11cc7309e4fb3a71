import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { multipartBoundary, parseMultipart } from "../../src/core/multipart.ts";

const form = [
  "--b",
  'Content-Disposition: form-data; name="amount"',
  "",
  "100",
  "--b",
  "Content-Type: text/plain",
  'Content-Disposition: form-data; name="file"; filename="a.txt"',
  "",
  "line\r\n\r\n--not the boundary",
  "--b--",
  "",
].join("\r\n");

describe("a well-formed body", () => {
  test("is split into its parts, with headers in lower case and sorted by name", () => {
    expect(partsOf(form)).toEqual([
      { headers: [["content-disposition", 'form-data; name="amount"']], body: "100" },
      {
        headers: [
          ["content-disposition", 'form-data; name="file"; filename="a.txt"'],
          ["content-type", "text/plain"],
        ],
        body: "line\r\n\r\n--not the boundary",
      },
    ]);
  });

  test("may have a preamble and an epilogue, which are ignored", () => {
    expect(partsOf(`This is MIME.\r\n${form}epilogue\r\n--b\r\n`)).toEqual(partsOf(form));
    expect(partsOf(`\r\n${form}`)).toEqual(partsOf(form));
  });

  test("may have transport padding after its boundaries", () => {
    expect(partsOf(form.replaceAll("--b\r\n", "--b \t\r\n").replace("--b--", "--b--\t "))).toEqual(
      partsOf(form),
    );
  });

  test("may end right after the closing delimiter", () => {
    expect(partsOf(form.slice(0, -2))).toEqual(partsOf(form));
  });

  test("may have parts without headers or without content", () => {
    expect(partsOf("--b\r\n\r\nx\r\n--b--")).toEqual([{ headers: [], body: "x" }]);
    expect(partsOf("--b\r\n\r\n\r\n--b--")).toEqual([{ headers: [], body: "" }]);
    expect(partsOf("--b\r\na: 1\r\n\r\n\r\n--b--")).toEqual([{ headers: [["a", "1"]], body: "" }]);
  });

  test("keeps headers of one name in their order", () => {
    expect(partsOf("--b\r\nX: 2\r\nA: 0\r\nx: 1\r\n\r\n\r\n--b--")?.[0]?.headers).toEqual([
      ["a", "0"],
      ["x", "2"],
      ["x", "1"],
    ]);
  });

  test("keeps every byte of a header's value", () => {
    const bytes = Array.from({ length: 128 }, (_, i) => String.fromCharCode(128 + i)).join("");
    expect(partsOf(`--b\r\nname: ${bytes}\r\n\r\n\r\n--b--`)?.[0]?.headers).toEqual([["name", bytes]]);
  });

  test("is read from a view into a larger buffer", () => {
    const padded = Buffer.from(`xx${form}xx`, "latin1");
    expect(parseMultipart(new Uint8Array(padded).subarray(2, -2), "b")).toHaveLength(2);
  });

  test("gives back whatever parts were put in, under any boundary", () => {
    const content = fc.uint8Array({ maxLength: 60 });
    const boundaries = fc.stringMatching(/^[0-9A-Za-z'()+_,./:=?-]{20,70}$/);
    fc.assert(
      fc.property(fc.array(content, { minLength: 1, maxLength: 5 }), boundaries, (bodies, boundary) => {
        const bytes = Buffer.concat([
          ...bodies.flatMap((body) => [
            Buffer.from(`--${boundary}\r\na: b\r\n\r\n`),
            body,
            Buffer.from("\r\n"),
          ]),
          Buffer.from(`--${boundary}--\r\n`),
        ]);
        const parts = parseMultipart(bytes, boundary);
        expect(parts?.map((part) => [...part.body])).toEqual(bodies.map((body) => [...body]));
      }),
    );
  });
});

describe("a malformed body is not split", () => {
  test.each([
    ["nothing at all", ""],
    ["no boundary", "hello"],
    ["another boundary", form.replaceAll("--b", "--c")],
    ["no closing delimiter", form.replace("--b--\r\n", "")],
    ["cut off within a part", form.slice(0, 60)],
    ["bare line feeds", form.replaceAll("\r\n", "\n")],
    ["only the closing delimiter", "--b--\r\n"],
    ["text after a boundary", form.replace("--b\r\n", "--b x\r\n")],
    ["a header on the line of a boundary", "--bxxa: 1\r\n\r\n1\r\n--b--"],
    ["a longer boundary that begins like this one", form.replace("line", "line\r\n--bc")],
    ["text after the closing delimiter", form.replace("--b--", "--b--x")],
    ["a boundary within the preamble's line", `x${form.slice(0, form.indexOf("--b", 3))}`],
    ["a part without the empty line after its headers", "--b\r\na: 1\r\n--b--"],
    ["a part that is not there", "--b\r\n--b--"],
    ["a header without a colon", "--b\r\nheader\r\n\r\n\r\n--b--"],
    ["a header without a name", "--b\r\n: 1\r\n\r\n\r\n--b--"],
    ["a space before the colon", "--b\r\na : 1\r\n\r\n\r\n--b--"],
    ["a folded header", "--b\r\na: 1\r\n 2\r\n\r\n\r\n--b--"],
    ["a line feed within a header", "--b\r\na: 1\nb: 2\r\n\r\n\r\n--b--"],
    ["a NUL within a header", "--b\r\na: \0\r\n\r\n\r\n--b--"],
  ])("%s", (_, body) => {
    expect(partsOf(body)).toBeUndefined();
  });

  test("and never throws, whatever the bytes", () => {
    const fragment = fc.constantFrom("--b", "--", "\r\n", "\r", "\n", "a: b", ":", " ", "x", "\0");
    fc.assert(
      fc.property(fc.array(fragment, { maxLength: 30 }), (fragments) => {
        partsOf(fragments.join(""));
      }),
      { numRuns: 2_000 },
    );
  });
});

describe("hostile bodies are read in linear time", () => {
  test.each([
    ["ten thousand headers", `--b\r\n${"x: 1\r\n".repeat(10_000)}\r\n\r\n--b--`, 1],
    ["a mebibyte of spaces in a header", `--b\r\nx: 1${" ".repeat(1_048_576)}1\r\n\r\n\r\n--b--`, 1],
    ["spaces that end in a NUL", `--b\r\nx:${" ".repeat(1_048_576)}\0\r\n\r\n\r\n--b--`, undefined],
    ["a hundred thousand parts", `${"--b\r\n\r\n\r\n".repeat(100_000)}--b--`, 100_000],
    ["a mebibyte of almost-boundaries", `--b\r\n\r\n${"\r\n--".repeat(262_144)}\r\n--b--`, 1],
  ])("%s", (_, body, parts) => {
    const startedMs = performance.now();
    expect(partsOf(body)?.length).toBe(parts);
    expect(performance.now() - startedMs).toBeLessThan(5_000);
  });
});

describe("the boundary of a content type", () => {
  test.each([
    ["multipart/form-data; boundary=abc", "abc"],
    ["Multipart/Mixed;BOUNDARY=abc", "abc"],
    ['multipart/form-data; boundary="a b:c"', "a b:c"],
    ['multipart/form-data; boundary="a\\bc"', "abc"],
    [
      "multipart/form-data; charset=utf-8; boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW",
      "----WebKitFormBoundary7MA4YWxkTrZu0gW",
    ],
    ['multipart/related; start="<a;boundary=x>"; boundary=abc ; type="text/xml"', "abc"],
    ["multipart/form-data; boundary====1==", "===1=="],
    [`multipart/form-data; boundary=${"a".repeat(70)}`, "a".repeat(70)],
  ])("%s", (contentType, boundary) => {
    expect(multipartBoundary(contentType)).toBe(boundary);
  });

  test.each([
    "",
    "multipart/form-data",
    "application/json; boundary=abc",
    "multipart/; boundary=abc",
    "multipart/form-data; boundary=",
    'multipart/form-data; boundary=""',
    'multipart/form-data; boundary="abc',
    'multipart/form-data; boundary="abc "',
    "multipart/form-data; boundary=a; boundary=b",
    "multipart/form-data; boundary=a b",
    "multipart/form-data; boundary=é",
    `multipart/form-data; boundary=${"a".repeat(71)}`,
    'multipart/form-data; boundary="a\r\nb"',
  ])("there is none in %j", (contentType) => {
    expect(multipartBoundary(contentType)).toBeUndefined();
  });
});

function partsOf(body: string): { headers: [string, string][]; body: string }[] | undefined {
  return parseMultipart(Buffer.from(body, "latin1"), "b")?.map((part) => ({
    headers: part.headers,
    body: Buffer.from(part.body).toString("latin1"),
  }));
}
