"""The connection between the driver and a resident task.

Who connects proves that he has the secret which the driver sent with the task, and so does the
driver (a challenge each way, HMAC): what comes over it is unpickled, so nobody else may speak. It
is bound to the loopback where all executors are on the driver's host.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

_LOOPBACK = ("localhost", "127.0.0.1", "::1", "")


@dataclass(frozen=True, slots=True)
class Address:
    """Where the driver listens, and the secret by which who may speak is known."""

    host: str
    port: int
    secret: bytes

    def __repr__(self) -> str:
        """Say where; the secret is nobody's business."""
        return f"<Address {self.host}:{self.port}>"


class ChannelClosed(Exception):
    """The other side is gone, or this one has closed."""


class Channel:
    """One side of a connection; any thread may send, one receives."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        """Take a connection over which both sides have proved who they are."""
        self._connection, self._sending = connection, threading.Lock()

    @classmethod
    def to(cls, address: Address) -> Channel:
        """Connect to the driver."""
        return cls(Client((address.host, address.port), authkey=address.secret))

    def send(self, message: object) -> None:
        """Send a message, behind all that were sent before; waits while the other side is slow.

        Raises:
            ChannelClosed: Nobody is there to take it.
        """
        try:
            with self._sending:
                self._connection.send(message)
        except (OSError, EOFError, ValueError) as error:
            raise ChannelClosed(str(error)) from error

    def receive(self) -> Any:
        """The next message.

        Raises:
            ChannelClosed: There will be none.
        """
        try:
            return self._connection.recv()
        except (OSError, EOFError, TypeError) as error:
            # Closed by another thread while it waits, a connection has no handle: TypeError.
            raise ChannelClosed(str(error)) from error

    def close(self) -> None:
        """Let go of it; the other side notices."""
        with suppress(OSError):
            self._connection.close()


class Reception:
    """Where a driver takes connections of its tasks; each is handed to a thread of its own."""

    def __init__(self, host: str, serve: Callable[[Channel], None]) -> None:
        """Listen, on the loopback if that is where tasks are."""
        at = "127.0.0.1" if host in _LOOPBACK else host
        secret = secrets.token_bytes(32)
        self._listener = Listener((at, 0), authkey=secret)
        _, port = self._listener.address
        self.address = Address(at, int(port), secret)
        self._serve, self._closed = serve, False
        threading.Thread(target=self._accept, name="anabranch-reception", daemon=True).start()

    def close(self) -> None:
        """Take no more."""
        self._closed = True
        with suppress(OSError):
            # Closing a socket wakes nobody who waits for a connection on it; one that comes does.
            Client(self._listener.address, authkey=self.address.secret).close()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection = self._listener.accept()
            except (AuthenticationError, EOFError, ConnectionError):
                continue  # somebody else, or one who thought better of it
            except OSError:
                return
            channel = Channel(connection)
            serving = threading.Thread(
                target=self._serve, args=(channel,), name="anabranch-channel", daemon=True
            )
            serving.start()
