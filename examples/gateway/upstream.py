"""A payments service that knows nothing of idempotency keys: every POST that it gets is a charge.

It keeps a ledger, and answers what became of a request if it is asked by its key. Python's standard library is enough:

    python3 examples/gateway/upstream.py --port 9000

To see what the gateway is for, a charge may ask for trouble with an `X-Trouble` header: `lost` books the charge and
breaks the connection off before the answer, `slow` takes two seconds, `crash` answers 500 and books nothing.
"""

import argparse
import base64
import hashlib
import json
import sqlite3
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


class Ledger:
    """One row for each charge that was made. A key that was charged twice has two rows: nothing here prevents it."""

    def __init__(self, path):
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, check_same_thread=False)
        self._db.execute("CREATE TABLE IF NOT EXISTS charges (id INTEGER PRIMARY KEY, tenant TEXT, key TEXT, amount INTEGER)")

    def book(self, tenant, key, amount):
        with self._lock, self._db:
            cursor = self._db.execute(
                "INSERT INTO charges (tenant, key, amount) VALUES (?, ?, ?)", (tenant, key, amount)
            )
            return {"id": f"ch_{cursor.lastrowid}", "amount": amount}

    def by_key(self, tenant, key):
        with self._lock:
            row = self._db.execute(
                "SELECT id, amount FROM charges WHERE tenant = ? AND key = ? ORDER BY id", (tenant, key)
            ).fetchone()
        return None if row is None else {"id": f"ch_{row[0]}", "amount": row[1]}

    def all(self):
        with self._lock:
            rows = self._db.execute("SELECT id, key, amount FROM charges ORDER BY id").fetchall()
        return [{"id": f"ch_{number}", "key": key, "amount": amount} for number, key, amount in rows]


def tenant_of(authorization):
    """What the gateway calls the caller, whom it knows by the digest of a header."""
    digest = hashlib.sha256(authorization.encode("latin-1")).digest()
    return "h." + base64.urlsafe_b64encode(digest).decode().rstrip("=")


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    ledger = None

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path != "/charges":
            return self.answer(404, {"error": "there is nothing here"})
        trouble = self.headers.get("x-trouble")
        try:
            amount = json.loads(body)["amount"]
        except (ValueError, KeyError, TypeError):
            return self.answer(400, {"error": "send an amount"})
        if trouble == "crash":
            return self.answer(500, {"error": "nothing was booked"})
        if trouble == "slow":
            time.sleep(2)
        # The gateway passes the key on as its client sent it, which may be in quotes.
        key = (self.headers.get("idempotency-key") or "").strip('"')
        charge = self.ledger.book(tenant_of(self.headers.get("authorization", "")), key, amount)
        if trouble == "lost":
            self.close_connection = True
            return self.connection.close()
        return self.answer(201, charge)

    def do_GET(self):
        if self.path == "/charges":
            return self.answer(200, self.ledger.all())
        if self.path.startswith("/charges/by-key/"):
            asked = urlsplit(self.path)
            [tenant] = parse_qs(asked.query).get("tenant", [""])
            charge = self.ledger.by_key(tenant, unquote(asked.path[len("/charges/by-key/") :]))
            return self.answer(404, {"error": "no such charge"}) if charge is None else self.answer(200, charge)
        return self.answer(200 if self.path == "/health" else 404, {})

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main():
    options = argparse.ArgumentParser(description="A payments service to put a gateway in front of.")
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, default=9000)
    options.add_argument("--ledger", default=":memory:", help="a SQLite file; in memory if left out")
    given = options.parse_args()
    Service.ledger = Ledger(given.ledger)
    server = ThreadingHTTPServer((given.host, given.port), Service)
    print(f"listening on http://{given.host}:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
