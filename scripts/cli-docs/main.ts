// Writes the reference of the commands in docs/cli.md: `npm run docs:cli`.
import { readFileSync, writeFileSync } from "node:fs";
import { commands } from "../../src/cli/commands.ts";
import { withReference } from "./reference.ts";

const page = new URL("../../docs/cli.md", import.meta.url);
writeFileSync(page, withReference(readFileSync(page, "utf8"), commands));
