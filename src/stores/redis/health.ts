import type { RedisLink, RedisReply } from "./client.ts";
import { listOf } from "./server.ts";

/**
 * One sentence on what the server's settings mean for the records, or undefined if they mean no harm. Managed servers
 * often let nobody look: then that is what it says.
 */
export async function dangersOf(link: RedisLink): Promise<string | undefined> {
  let settings: readonly Readonly<Record<string, string>>[];
  try {
    settings = await settingsOf(link);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return (
      `Latchkey could not read Redis's settings (${reason}): make sure yourself that maxmemory-policy is noeviction and ` +
      "that appendonly is on, or records can be evicted or lost"
    );
  }
  const dangers = new Set(settings.flatMap(dangersOfNode));
  if (dangers.size === 0) return undefined;
  return `Latchkey's records in this Redis are not safe: ${[...dangers].join("; ")}`;
}

const settingNames = ["maxmemory", "maxmemory-policy", "appendonly", "save"] as const;

async function settingsOf(link: RedisLink): Promise<readonly Readonly<Record<string, string>>[]> {
  // One by one: before version 7, a server answers one at a time.
  const primaries = await link.primaries();
  return Promise.all(
    primaries.map(async (primary) => {
      const replies = await Promise.all(settingNames.map((name) => primary.send(["CONFIG", "GET", name])));
      return Object.fromEntries(replies.map((reply, nth) => [settingNames[nth], settingOf(reply)]));
    }),
  );
}

/** An array of a name and a value, or, in the newer protocol, something with the name as its key. */
function settingOf(reply: RedisReply): string {
  if (Array.isArray(reply)) return String(listOf(reply)[1] ?? "");
  const values = reply instanceof Map ? [...reply.values()] : Object.values(reply ?? {});
  return String(values[0] ?? "");
}

function dangersOfNode(settings: Readonly<Record<string, string>>): readonly string[] {
  const dangers: string[] = [];
  const policy = settings["maxmemory-policy"] ?? "";
  if (policy !== "noeviction" && settings.maxmemory !== "0") {
    dangers.push(
      policy.startsWith("allkeys")
        ? `maxmemory-policy ${policy} may evict any record, and a retry of it would be executed again (set noeviction)`
        : `maxmemory-policy ${policy} may evict answers, and a retry of them would be executed again (set noeviction)`,
    );
  }
  if (settings.appendonly !== "yes") {
    dangers.push(
      settings.save
        ? "without appendonly a crash loses what was written since the last snapshot (set appendonly yes)"
        : "without appendonly and save a crash or a restart loses all of them (set appendonly yes)",
    );
  }
  return dangers;
}
