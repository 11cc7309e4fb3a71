"""A service in another language: it has no opinions, and asks the test over its standard input and output what to answer.

Each request is one line of JSON on the output; each line on the input is one step of an answer:
  {"id", "do": "head", "status", "headers", "chunked"}   {"id", "do": "write", "data"}   {"id", "do": "end"}
  {"id", "do": "raw", "data"}                            {"id", "do": "cut"}
Every step is confirmed once the operating system has taken its bytes, so that the test feels a slow reader's pace.
"""

import base64
import json
import queue
import sys
import threading

from quiet_server import QuietHandler, QuietServer

steps_by_id = {}
ids = iter(range(1, 1 << 62))
output_lock = threading.Lock()


def tell(message):
    with output_lock:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


class Service(QuietHandler):
    def answer(self):
        body = self.read_body()
        exchange = next(ids)
        steps = steps_by_id[exchange] = queue.SimpleQueue()
        tell(
            {
                "id": exchange,
                "method": self.command,
                "path": self.path,
                "headers": [[name.lower(), value] for name, value in self.headers.items()],
                "body": base64.b64encode(body).decode(),
            }
        )
        chunked = False
        try:
            while True:
                step = steps.get()
                if step["do"] == "head":
                    chunked = step["chunked"]
                    self.send_head(step)
                elif step["do"] == "write":
                    self.send_piece(base64.b64decode(step["data"]), chunked)
                elif step["do"] == "raw":
                    self.wfile.write(base64.b64decode(step["data"]))
                elif step["do"] == "cut":
                    self.cut()
                else:
                    if chunked:
                        self.wfile.write(b"0\r\n\r\n")
                tell({"id": exchange, "done": True})
                if step["do"] in ("cut", "end"):
                    return
        except OSError:
            self.close_connection = True
            tell({"id": exchange, "gone": True})
        finally:
            del steps_by_id[exchange]

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer

    def read_body(self):
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", "0")))
        pieces = []
        while size := int(self.rfile.readline(), 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def send_head(self, step):
        lines = [f"HTTP/1.1 {step['status']} Whatever"] + [f"{name}: {value}" for name, value in step["headers"]]
        if step["chunked"]:
            lines.append("transfer-encoding: chunked")
        self.wfile.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    def send_piece(self, piece, chunked):
        if chunked and piece:
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        elif piece:
            self.wfile.write(piece)


server = QuietServer(("127.0.0.1", 0), Service)
threading.Thread(target=server.serve_forever, daemon=True).start()
tell({"port": server.server_address[1]})
for line in sys.stdin:
    step = json.loads(line)
    steps = steps_by_id.get(step["id"])
    if steps is None:
        tell({"id": step["id"], "gone": True})
    else:
        steps.put(step)
