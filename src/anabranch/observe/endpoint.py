"""Where Prometheus reads the figures of this process's queries: an address, and who is shown there.

Queries of one process share an address. It is opened with the first of them and closed with the
last. Whatever readers do, the queries do not notice.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
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
"""How long a reader may take to ask."""


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
                raise _refused(query, address, error.strerror or str(error)) from error
        elif query in found.queries:
            raise _refused(query, address, "it shows a query of this name already")
        found.add(query, metrics)
        return found


def hide(endpoint: Endpoint, query: str) -> None:
    """Show a query's figures no more; with the last one the address is given up."""
    with _LOCK:
        endpoint.remove(query)
        if not endpoint.queries:
            del _OPEN[endpoint.address]
            endpoint.close()


def _refused(name: str, address: Address, why: str) -> AnabranchError:
    message = f"metrics of {name!r} are not shown: port {address.port} of {address.host}: {why}"
    so = "the query goes on; to see them, choose another port (ANABRANCH_METRICS_PORT, or "
    so += "--metrics-port of anabranch run) or end what has this one, and start the query again"
    return AnabranchError(message, so=so)


class _Server(ThreadingTCPServer):
    """A thread a reader; none of them keeps the process alive.

    Not `HTTPServer`: that one asks the network for the name of its host before it serves.
    """

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: Address, text: Callable[[], str]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self.text = text
        super().__init__((address.host, address.port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that goes away before it has its answer is no news."""


class _Handler(BaseHTTPRequestHandler):
    """Answers who asks for the figures, and nobody else."""

    timeout = _READER_S
    server: _Server

    def do_GET(self) -> None:
        """Give the figures."""
        self.wfile.write(self._answer())

    def do_HEAD(self) -> None:
        """Say what there would be."""
        self._answer()

    def _answer(self) -> bytes:
        there = self.path.partition("?")[0] == PATH
        text = self.server.text() if there else f"the figures are at {PATH}\n"
        # A name may hold halves of characters, which no encoding has.
        body = text.encode("utf-8", errors="replace")
        self.send_response(HTTPStatus.OK if there else HTTPStatus.NOT_FOUND)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        return body

    def version_string(self) -> str:
        """Who serves, without the versions of what it is made of."""
        return "anabranch"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is called there
        """Say nothing: a reader comes every few seconds."""
