// The playground by itself: `npm start`.
import { startDemo } from "./demo.ts";

const demo = await startDemo({ log: console.log });
console.log(`The playground is open: ${demo.url}\nCtrl-C ends it.`);
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => void demo.close());
