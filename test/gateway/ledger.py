"""A payments service with a ledger of its own: one row for each request that it has executed.

  POST /charges                charges, after a while; sometimes the answer is lost on its way back
  GET  /charges/by-key/<key>   what became of a key: 200 with its answer, or 404
  GET  /ledger                 every row
"""

import json
import random
import sys
import threading
import time

from quiet_server import QuietHandler, QuietServer

ledger = []
lock = threading.Lock()
chances = random.Random(int(sys.argv[1]))


class Payments(QuietHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with lock:
            pause, chance = chances.uniform(0, 0.03), chances.random()
        time.sleep(pause)
        with lock:
            row = {"key": self.headers["idempotency-key"], "amount": request["amount"], "charge": len(ledger) + 1}
            ledger.append(row)
        if chance < 0.02:
            self.cut()
        else:
            self.answer(201, row)

    def do_GET(self):
        with lock:
            rows = list(ledger)
        if self.path == "/ledger":
            self.answer(200, rows)
            return
        key = self.path.rpartition("/")[2]
        row = next((row for row in rows if row["key"] == key), None)
        self.answer(404 if row is None else 200, row)

    def answer(self, status, value):
        body = json.dumps(value).encode()
        head = f"HTTP/1.1 {status} Whatever\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.wfile.write(head.encode() + body)


server = QuietServer(("127.0.0.1", 0), Payments)
print(server.server_address[1], flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()  # Ends with whoever started it.
