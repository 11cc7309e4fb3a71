// The tests' own Postgres server, kept by a process of its own: the tests are TypeScript, and what is measured is not
// to be transformed. It tells its parent the address, and takes the server down when the parent lets go of it.
import { tsImport } from "tsx/esm/api";

const settings = JSON.parse(process.argv[2] ?? "{}");
const { startPostgres } = await tsImport("../../test/support/postgres-server.ts", import.meta.url);
const server = await startPostgres({ settings });
process.on("disconnect", () => void server.remove());
process.send?.({ url: server.url });
