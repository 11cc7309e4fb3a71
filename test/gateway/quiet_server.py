"""What the services of these tests have in common: connections that break are part of what is tested, and no news."""

import socket
import struct
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class QuietHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def cut(self):
        """Resets the connection, as the system does for a process that is killed with unread bytes."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except OSError:
            pass  # Whoever asked is gone. What was done stays done.


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def shutdown_request(self, request):
        try:
            super().shutdown_request(request)
        except OSError:
            pass
