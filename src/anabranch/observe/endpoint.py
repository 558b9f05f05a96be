"""Where Prometheus reads the figures of this process's queries: an address, and who is shown there.

Queries of one process share an address. It is opened with the first of them and closed with the
last. Whatever readers do, the queries do not notice.

Nothing can be done here but to read: there is one page, no file is served, and none is looked for.
On an address of this host alone, who asks for another host is refused: a page that somebody's
browser loaded from elsewhere may have had that name point here (DNS rebinding).
"""

from __future__ import annotations

import errno
import re
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

from anabranch.clock import Clock
from anabranch.config import Address
from anabranch.errors import AnabranchError
from anabranch.observe.metrics import CONTENT_TYPE, Metrics, exposition

PATH = "/metrics"

_POLL_S = 0.05
"""How long the end of the last query waits for the server's thread, at most."""
_READER_S = 10.0
"""How long a reader may be silent while it asks."""
_READERS = 16
"""How many are served at once: each has a thread. The one that came first makes room for more."""
_HERE = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Endpoint:
    """An address at which the figures of some queries can be read."""

    def __init__(self, address: Address, clock: Clock) -> None:
        """Open it; it is free for another when it is closed."""
        self.address, self._clock = address, clock
        self._shown: Mapping[str, Callable[[], Metrics]] = {}
        """By query. Replaced, never changed: readers read it meanwhile."""
        self._server = _Server(address, self._text)
        name = f"anabranch-metrics-{self.port}"
        threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name=name, daemon=True
        ).start()

    @property
    def port(self) -> int:
        """The port it has: the one asked for, or any that was free where that was 0."""
        return int(self._server.server_address[1])

    @property
    def queries(self) -> tuple[str, ...]:
        """Those that are shown."""
        return tuple(self._shown)

    def add(self, query: str, metrics: Callable[[], Metrics]) -> None:
        """Show a query's figures; `metrics` is called from any thread."""
        self._shown = {**self._shown, query: metrics}

    def remove(self, query: str) -> None:
        """Show them no more."""
        self._shown = {name: each for name, each in self._shown.items() if name != query}

    def close(self) -> None:
        """Give the address up; who reads just now gets an answer or none."""
        self._server.shutdown()
        self._server.server_close()

    def _text(self) -> str:
        return exposition([metrics() for metrics in self._shown.values()], self._clock.now())


_OPEN: dict[Address, Endpoint] = {}
_LOCK = threading.Lock()
"""Held by who opens, enters, leaves or closes; never by who reads."""


def show(address: Address, clock: Clock, query: str, metrics: Callable[[], Metrics]) -> Endpoint:
    """Show a query's figures at an address, until `hide`.

    Raises:
        AnabranchError: The address cannot be had, or shows a query of this name.
    """
    with _LOCK:
        found = _OPEN.get(address)
        if found is None:
            try:
                found = _OPEN[address] = Endpoint(address, clock)
            except OSError as error:
                raise _refused(query, address, error.strerror or str(error), _so(error)) from error
        elif query in found.queries:
            so = "give one of the programs another name, or its own port by ANABRANCH_METRICS_PORT"
            raise _refused(query, address, "it shows a query of this name already", so)
        found.add(query, metrics)
        return found


def hide(endpoint: Endpoint, query: str) -> None:
    """Show a query's figures no more; with the last one the address is given up."""
    with _LOCK:
        endpoint.remove(query)
        if not endpoint.queries:
            del _OPEN[endpoint.address]
            endpoint.close()


def _refused(name: str, address: Address, why: str, so: str) -> AnabranchError:
    message = f"metrics of {name!r} are not shown: port {address.port} of {address.host}: {why}"
    return AnabranchError(message, so=f"the query goes on; to see them, {so}")


def _so(error: OSError) -> str:
    if error.errno == errno.EADDRNOTAVAIL:
        return "let ANABRANCH_METRICS_HOST be an address of this host, and start the query again"
    return (
        "choose another port (ANABRANCH_METRICS_PORT, or --metrics-port of anabranch run) or end "
        "what has this one, and start the query again"
    )


class _Server(ThreadingTCPServer):
    """A thread a reader; none of them keeps the process alive.

    Not `HTTPServer`: that one asks the network for the name of its host before it serves.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: Address, text: Callable[[], str]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self.text = text
        self.names = _HERE | {address.host} if _is_loopback(address.host) else None
        """What this host is called by who may ask; None: it has any name on its network."""
        self._readers: dict[int, socket.socket] = {}
        """Those that are served now, by their descriptor, the first come first."""
        self._turn = threading.Lock()
        super().__init__((address.host, address.port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a reader in a thread of its own; one that is slow is let go where many come."""
        with self._turn:
            while len(self._readers) >= _READERS:
                slow = self._readers.pop(next(iter(self._readers)))
                with suppress(OSError):
                    slow.shutdown(socket.SHUT_RDWR)  # its thread reads the end, and ends
            self._readers[request.fileno()] = request
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """A reader has its answer, or none will come."""
        with self._turn:
            self._readers = {at: each for at, each in self._readers.items() if each is not request}
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that goes away before it has its answer is no news."""


class _Handler(BaseHTTPRequestHandler):
    """Answers who asks for the figures, and nobody else."""

    timeout = _READER_S
    default_request_version = "HTTP/1.0"
    """What is no request is answered as one of this version: with a status."""
    server: _Server

    def do_GET(self) -> None:
        """Give the figures."""
        self._answer(*self._found())

    def do_HEAD(self) -> None:
        """Say what there would be."""
        self._answer(*self._found())

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002 - as it is called there
        """Say what is wrong in a few words of ours: what was asked is not repeated."""
        # A method that is not known here is known to be not allowed.
        known = code == HTTPStatus.NOT_IMPLEMENTED
        status = HTTPStatus.METHOD_NOT_ALLOWED if known else HTTPStatus(code)
        self.close_connection = True
        self._answer(status, f"{status.phrase}: GET {PATH} is all there is\n")

    def _found(self) -> tuple[HTTPStatus, str]:
        if not self._knows_us():
            return HTTPStatus.BAD_REQUEST, "Bad Request: this host is not the one you ask for\n"
        if self.path.partition("?")[0] != PATH:
            return HTTPStatus.NOT_FOUND, f"the figures are at {PATH}\n"
        return HTTPStatus.OK, self.server.text()

    def _knows_us(self) -> bool:
        asked = self.headers.get_all("Host", [])
        # Who speaks HTTP/1.0 says no name, and is no browser.
        return self.server.names is None or all(
            re.sub(r":[0-9]*$", "", name.strip().lower()) in self.server.names for name in asked
        )

    def _answer(self, status: HTTPStatus, text: str) -> None:
        # A name may hold halves of characters, which no encoding has.
        body = text.encode("utf-8", errors="replace")
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        """Who serves, without the versions of what it is made of."""
        return "anabranch"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is called there
        """Say nothing: a reader comes every few seconds."""


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")
