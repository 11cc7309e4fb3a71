import Database from "libsql";
import { describe, it } from "vitest";
import { runStoreContract } from "../../src/testing/index.ts";
import { harness, useFolder } from "./sqlite-support.ts";

const place = useFolder();

describe("sqlite store on a file", () => {
  runStoreContract({ it, open: async () => harness(place.path, new Database(place.path)) });
});

describe("sqlite store on a connection of the user's own", () => {
  runStoreContract({ it, open: async () => harness(new Database(place.path), new Database(place.path)) });
});

describe("sqlite store on a connection that returns integers as bigint", () => {
  runStoreContract({
    it,
    open: async () => harness(new Database(place.path).defaultSafeIntegers(), new Database(place.path)),
  });
});
