"""The connection between the driver and a resident task.

Who connects proves that he has the secret which the driver sent with the task, and so does the
driver (a challenge each way, HMAC): what comes over it is unpickled, so nobody else may speak. It
is bound to the loopback where all executors are on the driver's host.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from typing import Any

_PROOF_S = 10
"""How long who connects may take to prove that he may."""
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
        with suppress(OSError), self._socket() as same:
            # Else a small message waits until the one before it is acknowledged, up to 40 ms.
            same.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

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

    def finish(self) -> None:
        """Send nothing more; the other side gets all that was sent, and then notices.

        To close at once could throw away what it has not read yet: a connection that is closed
        with something unread in it is reset.
        """
        with suppress(OSError), self._socket() as same:
            same.shutdown(socket.SHUT_WR)

    def _socket(self) -> socket.socket:
        return socket.socket(fileno=os.dup(self._connection.fileno()))

    def close(self) -> None:
        """Let go of it; the other side notices, and so does who waits here for a message."""
        # Closing alone wakes nobody: who waits in a system call keeps the socket open.
        with suppress(OSError), self._socket() as same:
            same.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            self._connection.close()


class Reception:
    """Where a driver takes connections of its tasks; each is handed to a thread of its own."""

    def __init__(self, host: str, serve: Callable[[Channel], None]) -> None:
        """Listen, on the loopback if that is where tasks are."""
        at = "127.0.0.1" if host in _LOOPBACK else host
        self._listening = socket.create_server((at, 0))
        self.address = Address(at, self._listening.getsockname()[1], secrets.token_bytes(32))
        self._serve, self._closed = serve, False
        threading.Thread(target=self._accept, name="anabranch-reception", daemon=True).start()

    def close(self) -> None:
        """Take no more."""
        self._closed = True
        with suppress(OSError):
            # Closing a socket wakes nobody who waits for a connection on it; one that comes does.
            socket.create_connection((self.address.host, self.address.port), _PROOF_S).close()
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listening.accept()
            except OSError:
                return
            if self._closed:
                connected.close()
                return
            threading.Thread(
                target=self._greet, args=(connected,), name="anabranch-channel", daemon=True
            ).start()

    def _greet(self, connected: socket.socket) -> None:
        """Serve whoever proves that he has the secret, before long; nobody waits for others."""
        _patient(connected, _PROOF_S)
        connection: Connection[Any, Any] = Connection(os.dup(connected.fileno()))
        try:
            deliver_challenge(connection, self.address.secret)
            answer_challenge(connection, self.address.secret)
            _patient(connected, 0)
        except (AuthenticationError, EOFError, OSError):
            connection.close()
            return
        finally:
            connected.close()
        self._serve(Channel(connection))


def _patient(connected: socket.socket, seconds: int) -> None:
    """Wait so long for what the other side sends; 0: as long as it takes."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))
