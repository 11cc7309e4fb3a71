import Database from "libsql";
import { describe, it } from "vitest";
import { runStoreContract } from "../../src/testing/index.ts";
import { harness, useFolder } from "./sqlite-support.ts";

const place = useFolder();
const lacks = {
  push: "no process hears of another's writes to a file",
  "bust news": "no process hears of another's writes to a file",
  "bust generation": "no process hears of another's writes to a file",
};

describe("sqlite store on a file", () => {
  runStoreContract({ it, lacks, open: async () => harness(place.path, new Database(place.path)) });
});

describe("sqlite store on a connection of the user's own", () => {
  runStoreContract({
    it,
    lacks,
    open: async () => harness(new Database(place.path), new Database(place.path)),
  });
});

describe("sqlite store on a connection that returns integers as bigint", () => {
  runStoreContract({
    it,
    lacks,
    open: async () => harness(new Database(place.path).defaultSafeIntegers(), new Database(place.path)),
  });
});
