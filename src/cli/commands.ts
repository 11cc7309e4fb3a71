import type { Command } from "./command.ts";
import { audit } from "./commands/audit.ts";
import { bust } from "./commands/bust.ts";
import { completionOf } from "./commands/completion.ts";
import { deadLetters } from "./commands/dead-letters.ts";
import { demo } from "./commands/demo.ts";
import { gateway } from "./commands/gateway.ts";
import { inspect } from "./commands/inspect.ts";
import { list } from "./commands/list.ts";
import { migrate } from "./commands/migrate.ts";
import { resolve } from "./commands/resolve.ts";
import { stats } from "./commands/stats.ts";
import { verify } from "./commands/verify.ts";
import { work } from "./commands/work.ts";

/** Every command, in the order in which they are listed: parsing, help, completion and the documentation follow it. */
export const commands: readonly Command[] = [
  demo,
  gateway,
  migrate,
  work,
  list,
  inspect,
  resolve,
  bust,
  deadLetters,
  stats,
  verify,
  audit,
  completionOf(() => commands),
];
