// One relay in a process of its own: says when it is ready, begins when it is told to, and reports how many messages it
// has delivered to a handler that does nothing.
import { createLatchkey } from "latchkey";
import { postgresStore } from "latchkey/postgres";
import { relay, toHandlers } from "latchkey/workers";
import pg from "pg";

const pool = new pg.Pool({ connectionString: process.argv[2], max: 3 });
const latchkey = createLatchkey({ store: postgresStore(pool), tenant: "single" });
let delivered = 0;
const worker = relay(latchkey, {
  deliver: toHandlers({
    async "receipt.send"() {
      delivered += 1;
    },
  }),
  intervalMs: 10,
});
process.on("message", () => {
  void worker.run(new AbortController().signal);
  setInterval(() => process.send?.({ delivered }), 5);
});
// Whoever started this process is gone: so is the reason to run.
process.on("disconnect", () => process.exit());
process.send?.("ready");
