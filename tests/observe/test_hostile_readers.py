"""What a reader may do to the endpoint: scenario 24 of the reliability notes, on loopback.

It is the one socket that this package opens for others. There is nothing to be had there but the
figures, whatever is asked for and however; and it is there for the next one afterwards.
"""

import contextlib
import http.client
import random
import socket
import threading

import pytest

from anabranch.config import Address
from anabranch.observe import endpoint as endpoints
from anabranch.observe.endpoint import Endpoint
from anabranch.observe.metrics import Metrics
from anabranch.testing import MockClock

PATIENCE_S = 60
HOST = "127.0.0.1"
FIGURE = 'anabranch_rows_late_total{query="q"} 3\n'


@pytest.fixture
def port():
    """The port of an endpoint, which must be well when the test is done with it."""
    endpoint = Endpoint(Address(HOST, 0), MockClock())
    endpoint.add("q", lambda: Metrics("q", late=3))
    yield endpoint.port
    assert answered(endpoint.port, b"GET /metrics HTTP/1.0\r\n\r\n").endswith(b"\n")
    endpoint.close()


def answered(port, asked):
    """All that comes back until the server hangs up."""
    with socket.create_connection((HOST, port), timeout=PATIENCE_S) as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(asked)
            connection.shutdown(socket.SHUT_WR)
        pieces = []
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(1 << 16):
                pieces.append(piece)
    return b"".join(pieces)


def status(port, asked):
    answer = answered(port, asked)
    return int(answer.split()[1]) if answer else None


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "X" * 100]
)
def test_nothing_can_be_done_but_to_read(port, method):
    answer = answered(port, f"{method} /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 405 ")
    assert b"\r\nAllow: GET, HEAD" in head
    assert b"Method Not Allowed: GET /metrics is all there is\n" == body


@pytest.mark.parametrize(
    "path",
    [
        "/", "/metrics/", "/metrics/../metrics", "/../../etc/passwd", "/%2e%2e/etc/passwd",
        "/metrics/..%2f..%2fetc%2fpasswd", "/static/x.js", "file:///etc/passwd", "/metrics%00",
        "http://example.com/metrics", "\\..\\x", "*", "/METRICS", "/metrics;a",
    ],
)  # fmt: skip
def test_no_path_leads_to_a_file(port, path):
    answer = answered(port, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    assert answer.startswith(b"HTTP/1.0 404 ")
    assert answer.endswith(b"\r\n\r\nthe figures are at /metrics\n")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:9464", "127.0.0.1", "127.0.0.1:1", "[::1]:9"]
)
def test_this_host_by_its_names_is_answered(port, host):
    answer = answered(port, f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())

    assert answer.startswith(b"HTTP/1.0 200 ")
    assert FIGURE.encode() in answer


@pytest.mark.parametrize(
    "hosts",
    [["evil.example"], ["evil.example:9464"], ["localhost.evil.example"], [""], ["127.0.0.1.nip.io"],
     ["localhost", "evil.example"], ["localhost@evil.example"], ["127.0.0.1:80:80"]],
)  # fmt: skip
def test_a_name_that_was_made_to_point_here_is_refused(port, hosts):
    lines = "".join(f"Host: {host}\r\n" for host in hosts)

    answer = answered(port, f"GET /metrics HTTP/1.1\r\n{lines}\r\n".encode())

    assert answer.startswith(b"HTTP/1.0 400 ")
    assert b"anabranch_" not in answer
    assert b"evil" not in answer


def test_on_an_address_of_a_network_any_name_will_do():
    """A host has many there, and who opened it to a network has said who may read."""
    endpoint = Endpoint(Address("0.0.0.0", 0), MockClock())
    try:
        asked = b"GET /metrics HTTP/1.1\r\nHost: worker-7.example\r\n\r\n"
        assert 200 == status(endpoint.port, asked)
    finally:
        endpoint.close()


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (b"GET /metrics HTTP/1.1\r\n" + b"X: a\r\n" * 200 + b"\r\n", 431),
        (b"GET /metrics HTTP/9.9\r\n\r\n", 505),
        (b"GET /metrics HTTP/x\r\n\r\n", 400),
        (b"GET /metrics x y z HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", 400),
        (b"\xff\xfe /\x00 \xff\r\n\r\n", 400),
        (b"GET /<script>alert(1)</script> HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n", 200),
    ],
)
def test_what_is_no_request_is_told_so_in_our_own_words(port, asked, expected):
    answer = answered(port, asked)

    assert expected == int(answer.split()[1])
    assert b"script" not in answer
    assert b"Python" not in answer
    assert b"html" not in answer.lower()


def test_random_bytes_are_answered_or_hung_up_on(port):
    words = [
        b"GET",
        b"POST",
        b" ",
        b"/metrics",
        b"\r\n",
        b"\n",
        b"Host:",
        b"HTTP/1.1",
        b"\0",
        b"%",
        b":",
    ]
    for seed in range(300):
        draw = random.Random(seed)
        asked = b"".join(
            draw.choice(words) if draw.random() < 0.8 else draw.randbytes(4) for _ in range(12)
        )
        answer = answered(port, asked + b"\r\n\r\n")
        assert b"Traceback" not in answer, seed


def test_slow_readers_make_room_for_others(port):
    """Each has a thread and may be silent for long: there are never more of them than a few."""
    slow = [socket.create_connection((HOST, port), timeout=PATIENCE_S) for _ in range(100)]
    try:
        for each in slow[-3:]:
            each.sendall(b"GET /met")
        assert 200 == status(port, b"GET /metrics HTTP/1.0\r\n\r\n")
        # Those that came first were let go: they read the end.
        for each in slow[: 100 - endpoints._READERS]:
            assert b"" == each.recv(1)
    finally:
        for each in slow:
            each.close()
    for thread in threading.enumerate():
        if "process_request_thread" in thread.name:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


@pytest.mark.slow
def test_a_reader_that_does_not_take_its_answer_keeps_nobody_waiting():
    endpoint = Endpoint(Address(HOST, 0), MockClock())
    # More than the system keeps for a connection of which nothing is taken.
    endpoint.add("q", lambda: Metrics("x" * (1 << 18)))
    deaf = [socket.create_connection((HOST, endpoint.port), timeout=PATIENCE_S) for _ in range(40)]
    try:
        for each in deaf:
            each.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        connection = http.client.HTTPConnection(HOST, endpoint.port, timeout=PATIENCE_S)
        connection.request("HEAD", "/metrics")
        assert 200 == connection.getresponse().status
        connection.close()
    finally:
        for each in deaf:
            each.close()
        endpoint.close()


def test_the_bytes_of_an_answer_say_what_they_are(port):
    """No browser takes them for a page, and no page of elsewhere may read them."""
    head = answered(port, b"GET /metrics HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")[0].decode()

    assert "X-Content-Type-Options: nosniff" in head
    assert "Content-Type: text/plain" in head
    assert "Access-Control" not in head
    assert "Server: anabranch\r\n" in head
