// One process of the shop, in the present: trades if it is an `api`, and runs the workers if it is `workers`.
import { syncBuiltinESMExports } from "node:module";
import os from "node:os";
import { reportActivity } from "../../src/admin/admin.ts";
import { systemRuntime } from "../../src/engine/runtime.ts";
import { openShop } from "./shop.ts";

const [file = "", role = "api", host = "pay-1"] = process.argv.slice(2);

// A picture shows a deployment, and not the machine that it was made on.
os.hostname = () => host;
syncBuiltinESMExports();

const shop = openShop(file, { runtime: systemRuntime, clock: Date.now });
reportActivity(shop.latchkey, { role });
if (role === "workers") shop.startWorkers();
else setInterval(() => void shop.trade(), 700);
process.send?.("ready");
