"""Where Prometheus reads: it is there while a query is, and no trouble with it ends one."""

import http.client
import logging
import socket
import threading

import polars as pl
import pytest
from prometheus_client.parser import text_string_to_metric_families

import anabranch as ab
from anabranch import config
from anabranch.api.starting import start
from anabranch.config import Address, Outlets
from anabranch.epoch.triggers import available_now, epochs
from anabranch.observe.endpoint import Endpoint, hide, show
from anabranch.observe.metrics import CONTENT_TYPE, Metrics
from anabranch.observe.watching import Watching
from anabranch.runtime.assembly import Settings
from anabranch.simulate.inline import InlineExecutor
from anabranch.testing import MockClock

PATIENCE_S = 60
HOST = "127.0.0.1"


def asked(port, path="/metrics", method="GET"):
    connection = http.client.HTTPConnection(HOST, port, timeout=PATIENCE_S)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


def free_port():
    with socket.create_server((HOST, 0)) as found:
        return found.getsockname()[1]


def doubles(name="doubles", fn=None):
    program, sink = ab.Program(name), ab.sinks.Callback(fn or (lambda rows, epoch: None))
    program.read(ab.sources.Records([{"n": n} for n in range(10)]), name="numbers").select(
        n=pl.col("n") * 2
    ).write(sink)
    return program.freeze()


def started(tmp_path, port, *, name="doubles", fn=None, trigger=None):
    outlets = Outlets(metrics=Address(HOST, port))
    trigger, directory = trigger or available_now(5), tmp_path / name
    settings = Settings(trigger, directory, 1, slices=8, in_flight=1, outlets=outlets)
    return start(doubles(name, fn), settings, InlineExecutor(), clock=MockClock())


def test_a_reader_gets_the_text_with_its_type():
    endpoint = show(Address(HOST, 0), MockClock(), "q", lambda: Metrics("q", late=3))
    try:
        status, headers, text = asked(endpoint.port)
        head = asked(endpoint.port, method="HEAD")
        lost = asked(endpoint.port, "/")
    finally:
        hide(endpoint, "q")

    assert (200, CONTENT_TYPE) == (status, headers["Content-Type"])
    assert 'anabranch_rows_late_total{query="q"} 3\n' in text
    assert (200, str(len(text)), "") == (head[0], head[1]["Content-Length"], head[2])
    assert (404, "the figures are at /metrics\n") == (lost[0], lost[2])


def test_a_name_that_no_encoding_has_is_shown_with_marks_in_its_place():
    endpoint = show(Address(HOST, 0), MockClock(), "\ud800", lambda: Metrics("\ud800"))
    try:
        assert 'anabranch_commits_total{query="?"} 0\n' in asked(endpoint.port)[2]
    finally:
        hide(endpoint, "\ud800")


def test_queries_share_an_address_which_is_free_again_after_the_last():
    port = free_port()
    for _ in range(2):
        a = show(Address(HOST, port), MockClock(), "a", lambda: Metrics("a"))
        b = show(Address(HOST, port), MockClock(), "b", lambda: Metrics("b"))
        assert a is b
        hide(a, "a")
        text = asked(port)[2]
        assert 'query="b"' in text
        assert 'query="a"' not in text
        hide(b, "b")

        with pytest.raises(ConnectionRefusedError):
            asked(port)


def test_figures_are_there_while_a_query_runs_and_the_port_is_free_behind_it(tmp_path):
    """One epoch is under way at a time: when the second is published, the first is counted."""
    port, found = free_port(), []

    def read(rows, epoch):
        if epoch == 1:
            found.append(asked(port)[2])

    query = started(tmp_path, port, fn=read)
    assert query.await_termination(PATIENCE_S)

    (text,) = found
    read = {family.name: family.samples for family in text_string_to_metric_families(text)}
    (commits,), (rows,) = read["anabranch_commits"], read["anabranch_rows_read"]
    assert ({"query": "doubles"}, 1) == (commits.labels, commits.value)
    assert ({"query": "doubles", "source": "numbers"}, 5) == (rows.labels, rows.value)
    with socket.create_server((HOST, port)):
        pass


def test_what_is_under_way_is_told_as_of_now(tmp_path):
    """Nothing was committed when the sink is given the first epoch, which is under way."""
    port, found = free_port(), []

    def read(rows, epoch):
        if epoch == 0:
            found.append(asked(port)[2])

    assert started(tmp_path, port, fn=read).await_termination(PATIENCE_S)

    assert 'anabranch_commits_total{query="doubles"} 0\n' in found[0]
    assert 'anabranch_epochs_under_way{query="doubles"} 0\n' not in found[0]


def test_a_port_that_is_in_use_is_named_with_what_to_do_and_the_query_goes_on(tmp_path, caplog):
    with socket.create_server((HOST, 0)) as other, caplog.at_level(logging.WARNING, "anabranch"):
        port = other.getsockname()[1]
        query = started(tmp_path, port)
        assert query.await_termination(PATIENCE_S)

    assert 10 == query.statistics()["rows"]
    (told,) = caplog.messages
    assert (
        f"metrics of 'doubles' are not shown: port {port} of {HOST}: Address already in use\n"
        "  so    the query goes on; to see them, choose another port (ANABRANCH_METRICS_PORT, or "
        "--metrics-port of anabranch run) or end what has this one, and start the query again"
    ) == told


def test_a_second_query_of_a_name_is_not_shown_and_runs(tmp_path, caplog):
    port, gate = free_port(), threading.Event()

    def hold(rows, epoch):
        assert gate.wait(PATIENCE_S)

    first = started(tmp_path / "1", port, fn=hold, trigger=epochs("1 s"))
    second = started(tmp_path / "2", port)
    assert second.await_termination(PATIENCE_S)

    shown = asked(port)[2]
    gate.set()
    first.stop()
    assert 'anabranch_commits_total{query="doubles"} 0\n' in shown
    assert "it shows a query of this name already" in caplog.text


def test_it_ends_with_a_query_that_fails(tmp_path):
    port = free_port()

    def fail(rows, epoch):
        raise ValueError("full")

    with pytest.raises(ab.RunError):
        started(tmp_path, port, fn=fail).await_termination(PATIENCE_S)

    with pytest.raises(ConnectionRefusedError):
        asked(port)


def test_a_reader_that_hangs_keeps_nobody_waiting():
    endpoint = Endpoint(Address(HOST, 0), MockClock())
    with socket.create_connection((HOST, endpoint.port)):
        assert 200 == asked(endpoint.port)[0]
        endpoint.close()


def test_a_watcher_that_fails_is_told_of_once_and_left_out(caplog):
    class Bad:
        closed = 0

        def note(self, progress):
            raise KeyError("no such figure")

        def close(self):
            self.closed += 1
            raise OSError("nor this")

    class Good:
        def __init__(self):
            self.noted = []

        def note(self, progress):
            self.noted.append(progress)

        def close(self):
            self.noted.append("closed")

    bad, good = Bad(), Good()
    watching = Watching([bad, good])

    watching.note({"batchId": 0})
    watching.note({"batchId": 1})
    watching.close()

    assert [{"batchId": 0}, {"batchId": 1}, "closed"] == good.noted
    assert 1 == bad.closed
    assert 1 == caplog.text.count("KeyError: 'no such figure'")


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http", "9 464", "٣"])
def test_what_is_no_port_is_refused(port):
    with pytest.raises(
        ab.AnabranchError, match=r"ANABRANCH_METRICS_PORT is .*\n.*from 1 to 65535$"
    ):
        config.outlets({"ANABRANCH_METRICS_PORT": port})


def test_no_port_is_opened_unless_one_is_asked_for():
    assert Outlets() == config.outlets({}) == config.outlets({"ANABRANCH_METRICS_PORT": ""})


def test_another_host_can_be_chosen():
    env = {"ANABRANCH_METRICS_PORT": "9464", "ANABRANCH_METRICS_HOST": "0.0.0.0"}

    assert Address("0.0.0.0", 9464) == config.outlets(env).metrics
