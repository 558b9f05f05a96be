"""A server between a client and an S3 server, which does to some requests what networks do."""

import http.client
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

CONFLICT = b"<Error><Code>ConditionalRequestConflict</Code><Message>Try again.</Message></Error>"
DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


class UnreliableS3:
    """Passes requests on. What becomes of puts is in `plan`, in their order; then all is well.

    "lost": it is done, and the connection ends without an answer. "failed": it is done, and the
    answer is that it was not. "conflict", "denied": it is not done. "unconditional": done whatever
    is there, as by a store that does not know conditional puts.
    """

    def __init__(self, server):
        self.plan, self.puts = deque(), 0
        made = type("_Handler", (_Handler,), {"upstream": urlsplit(server).netloc, "shared": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), made)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        self.shared.puts += 1
        fate = self.shared.plan.popleft() if self.shared.plan else "well"
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if fate == "unconditional":
            del self.headers["If-None-Match"]
        if fate in ("conflict", "denied"):
            self._answer(*((409, CONFLICT) if fate == "conflict" else (403, DENIED)), {})
            return
        answer = self._done(body)
        if fate == "lost":
            self.close_connection = True
        elif fate == "failed":
            self._answer(500, b"", {})
        else:
            self._answer(*answer)

    def do_GET(self):
        self._answer(*self._done(None))

    do_HEAD = do_DELETE = do_POST = do_GET

    def _done(self, body):
        if body is None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        connection = http.client.HTTPConnection(self.upstream)
        connection.request(self.command, self.path, body, dict(self.headers))
        found = connection.getresponse()
        data = found.read()
        connection.close()
        return found.status, data, dict(found.headers)

    def _answer(self, status, data, headers):
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, value)
        length = headers.get("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_):
        pass
