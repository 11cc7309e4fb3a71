import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { parseAllDocuments, parse as parseYaml } from "yaml";
import {
  checkGateway,
  type Gateway,
  type GatewayFlags,
  readSettings,
  startGateway,
} from "../../src/gateway/gateway.ts";
import { freePorts } from "../support/server-process.ts";

const folder = new URL("../../deploy/", import.meta.url);
const read = (name: string) => readFileSync(new URL(name, folder), "utf8");
const config = fileURLToPath(new URL("gateway.yaml", folder));
const secrets = {
  LATCHKEY_STORE: "postgres://latchkey:latchkey@postgres/latchkey",
  ADMIN_TOKEN: "t".repeat(48),
};
const settings = parseYaml(read("gateway.yaml")) as {
  listen: { port: number };
  admin: { port: number };
  metrics: { port: number };
};
const healthPath = "/-/latchkey/health";

/** No container is started here: what the files say is compared with what the gateway takes and answers. */
describe("what is deployed", () => {
  it("is a configuration that the gateway accepts, and that needs its secrets from outside", async () => {
    expect(await checkGateway({ config }, secrets)).toMatchObject({ errors: [], warnings: [] });
    const { errors } = await checkGateway({ config }, {});
    expect(errors.map(({ sentence }) => sentence).join()).toMatch(/LATCHKEY_STORE.*ADMIN_TOKEN/s);
  });

  it("is started with arguments that the gateway knows", () => {
    for (const args of everyGatewayCommand()) expect(flagsOf(args)).toEqual({ config: inImage });
    expect(everyGatewayCommand().length).toBeGreaterThan(3);
  });

  it("Compose publishes the ports that the gateways listen on", () => {
    const { services } = parseYaml(read("compose.yaml"), { merge: true }) as ComposeFile;
    for (const name of ["gateway-1", "gateway-2"]) {
      const published = services[name]?.ports?.map((port) => Number(port.split(":").at(-1)));
      expect(published).toEqual([settings.listen.port, settings.admin.port]);
      expect(services[name]?.depends_on).toHaveProperty(
        "migrate.condition",
        "service_completed_successfully",
      );
    }
    expect(services.migrate?.command?.slice(0, 2)).toEqual(["migrate", "--store"]);
  });

  it.each(["standalone.yaml", "sidecar.yaml"])(
    "Kubernetes (%s) asks where the gateway answers, and gives it nothing that it does not need",
    (file) => {
      const gateways = podsIn(file).flatMap(({ initContainers = [], containers }) =>
        [...initContainers, ...containers].filter(({ args }) => args?.[0] === "gateway"),
      );
      expect(gateways).toHaveLength(1);
      for (const gateway of gateways) {
        const ports = new Map(gateway.ports?.map(({ name, containerPort }) => [name, containerPort]));
        expect(ports.get("http")).toBe(settings.listen.port);
        if (ports.has("admin")) expect(ports.get("admin")).toBe(settings.admin.port);
        expect(gateway.readinessProbe?.httpGet).toEqual({ path: healthPath, port: "http" });
        expect(gateway.env?.map(({ name }) => name).sort()).toEqual(Object.keys(secrets).sort());
        expect(gateway.securityContext).toMatchObject({
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
        });
      }
      for (const pod of podsIn(file)) expect(pod.securityContext).toMatchObject({ runAsNonRoot: true });
    },
  );

  it("the image's process is nobody's but its own, and gets the signals itself", () => {
    const lines = read("Dockerfile").split("\n");
    expect(lines.filter((line) => line.startsWith("USER "))).toEqual(["USER 1000:1000"]);
    expect(lines).toContain('ENTRYPOINT ["latchkey"]');
    expect(lines).toContain(`EXPOSE ${settings.listen.port}`);
  });

  it("the unit checks a configuration before it starts or reloads with it", () => {
    const commands = read("latchkey-gateway.service")
      .split("\n")
      .filter((line) => /^Exec\w+=/.test(line));
    expect(commands.map((line) => line.split("=", 1)[0])).toEqual([
      "ExecStartPre",
      "ExecStart",
      "ExecReload",
      "ExecReload",
    ]);
    expect(commands[0]).toMatch(/--check$/);
    expect(commands[2]).toMatch(/--check$/);
    expect(commands[3]).toBe("ExecReload=/bin/kill -HUP $MAINPID");
  });
});

describe("the image's health check", () => {
  let gateway: Gateway | undefined;
  let port = 0;

  beforeEach(async () => {
    [port = 0] = await freePorts(1);
  });
  afterEach(async () => {
    await gateway?.close({ drainMs: 0 });
    gateway = undefined;
  });

  /** The very command of the Dockerfile, but for the port. */
  async function exitCode(): Promise<number> {
    const [, command] = /HEALTHCHECK[^\n]*\\\n\s*CMD (\[.*\])/.exec(read("Dockerfile")) ?? [];
    const [, ...args] = JSON.parse(command ?? "[]") as string[];
    const own = args.map((arg) => arg.replace(`:${settings.listen.port}/`, `:${port}/`));
    expect(own).not.toEqual(args);
    return promisify(execFile)(process.execPath, own).then(
      () => 0,
      ({ code }: { code: number }) => code,
    );
  }

  it("passes while the gateway serves, and fails when nobody does", async () => {
    const flags: GatewayFlags = { upstream: "http://127.0.0.1:9", tenant: "single", store: "memory:", port };
    gateway = await startGateway(await readSettings(flags), { logger: silent });
    expect(await exitCode()).toBe(0);
    await gateway.close({ drainMs: 0 });
    gateway = undefined;
    expect(await exitCode()).toBe(1);
  });
});

const silent = { info() {}, warn() {}, error() {}, debug() {} };
const inImage = "/etc/latchkey/gateway.yaml";

/** Every way in which one of the files starts a gateway. */
function everyGatewayCommand(): string[][] {
  const image = JSON.parse(/^CMD (\[.*\])$/m.exec(read("Dockerfile"))?.[1] ?? "[]") as string[];
  const unit = [...read("latchkey-gateway.service").matchAll(/^Exec.*\/latchkey (gateway .*)$/gm)].map(
    ([, command = ""]) => command.split(" ").filter((word) => word !== "--check"),
  );
  const pods = ["standalone.yaml", "sidecar.yaml"].flatMap(podsIn);
  const args = pods.flatMap(({ initContainers = [], containers }) =>
    [...initContainers, ...containers].flatMap((container) => (container.args ? [container.args] : [])),
  );
  return [image, ...unit, ...args].filter(([command]) => command === "gateway");
}

function flagsOf([, ...words]: readonly string[]): Record<string, string> {
  const flags: Record<string, string> = {};
  for (let index = 0; index < words.length; index += 2) {
    flags[words[index]?.replace(/^--/, "") ?? ""] = words[index + 1] ?? "";
  }
  return flags;
}

interface ComposeFile {
  readonly services: Record<
    string,
    { readonly ports?: string[]; readonly command?: string[]; readonly depends_on?: object }
  >;
}

interface Container {
  readonly args?: string[];
  readonly env?: { readonly name: string }[];
  readonly ports?: { readonly name: string; readonly containerPort: number }[];
  readonly readinessProbe?: { readonly httpGet: object };
  readonly securityContext?: object;
}

interface Pod {
  readonly securityContext?: object;
  readonly initContainers?: Container[];
  readonly containers: Container[];
}

function podsIn(file: string): Pod[] {
  const documents = parseAllDocuments(read(`kubernetes/${file}`));
  const objects = documents.map((document) => {
    expect(document.errors).toEqual([]);
    return document.toJS() as { kind: string; spec: { template?: { spec: Pod } } };
  });
  return objects.flatMap(({ spec }) => (spec.template === undefined ? [] : [spec.template.spec]));
}
