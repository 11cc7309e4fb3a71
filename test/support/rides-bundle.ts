import { join } from "node:path";
import { bundle, root } from "./bundle.ts";

export interface RidesPrograms {
  readonly server: string;
  readonly provider: string;
}

/** As files of their own: these tests start a thousand processes. */
export async function bundleRides(folder: string): Promise<RidesPrograms> {
  await bundle(folder, {
    server: join(root, "test/fixtures/rides-server.ts"),
    provider: join(root, "examples/rocket-rides/provider/server.ts"),
  });
  return { server: join(folder, "server.mjs"), provider: join(folder, "provider.mjs") };
}
