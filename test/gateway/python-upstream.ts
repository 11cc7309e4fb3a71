import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** A request as the Python service has read it. */
export interface AskedRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: Buffer;
}

/** What the service is told to do, step by step. Each resolves to whether the other side was still there. */
export interface Steps {
  head(status: number, headers: readonly (readonly [string, string])[], chunked: boolean): Promise<boolean>;
  write(bytes: Uint8Array): Promise<boolean>;
  /** Bytes as they are, for what no well-behaved service sends. */
  raw(bytes: string): Promise<boolean>;
  end(): Promise<boolean>;
  cut(): Promise<boolean>;
}

export type Service = (request: AskedRequest, steps: Steps) => Promise<void>;

export interface PythonUpstream {
  readonly port: number;
  /** Has `service` answer whatever comes below a path of its own; answers with the address of that. */
  mount(service: Service): string;
  stop(): Promise<void>;
}

/** Starts `upstream.py`, which ends with this process. */
export async function startPythonUpstream(): Promise<PythonUpstream> {
  const script = fileURLToPath(new URL("./upstream.py", import.meta.url));
  const child = spawn("python3", [script], { stdio: ["pipe", "pipe", "inherit"] });
  const services = new Map<string, Service>();
  const confirmed = new Map<number, ((isThere: boolean) => void)[]>();
  const exited = new Promise<void>((resolve) => child.on("exit", () => resolve()));

  function step(id: number, what: object): Promise<boolean> {
    return new Promise((resolve) => {
      const waiting = confirmed.get(id) ?? [];
      confirmed.set(id, waiting);
      waiting.push(resolve);
      child.stdin.write(`${JSON.stringify({ id, ...what })}\n`);
    });
  }

  function answer(asked: Asked): void {
    const [, mount = "", path = ""] = /^(\/\d+)(\/.*)$/s.exec(asked.path) ?? [];
    const service = services.get(mount);
    if (service === undefined) throw new Error(`nobody answers for ${asked.path}`);
    const { id } = asked;
    const steps: Steps = {
      head: (status, headers, chunked) => step(id, { do: "head", status, headers, chunked }),
      write: (bytes) => step(id, { do: "write", data: Buffer.from(bytes).toString("base64") }),
      raw: (bytes) => step(id, { do: "raw", data: Buffer.from(bytes, "latin1").toString("base64") }),
      end: () => step(id, { do: "end" }),
      cut: () => step(id, { do: "cut" }),
    };
    const request = { ...asked, path, body: Buffer.from(asked.body, "base64") };
    void service(request, steps).finally(() => confirmed.delete(id));
  }

  const port = await new Promise<number>((resolve, reject) => {
    child.on("error", (error) =>
      reject(
        new Error(
          "these tests need a service in Python: install python3 (Debian: apt-get install python3-minimal libpython3-stdlib) " +
            "and put it on the PATH",
          { cause: error },
        ),
      ),
    );
    createInterface({ input: child.stdout }).on("line", (line) => {
      const message = JSON.parse(line) as { port: number } | Asked | Confirmed;
      if ("port" in message) resolve(message.port);
      else if ("method" in message) answer(message);
      else confirmed.get(message.id)?.shift()?.(message.done === true);
    });
  });

  return {
    port,
    mount(service) {
      const path = `/${services.size + 1}`;
      services.set(path, service);
      return `http://127.0.0.1:${port}${path}`;
    },
    async stop() {
      child.stdin.end();
      await exited;
    },
  };
}

interface Asked extends Omit<AskedRequest, "body"> {
  readonly id: number;
  readonly body: string;
}

interface Confirmed {
  readonly id: number;
  readonly done?: boolean;
}
