"""Who may speak to a driver, and what becomes of what was said last."""

import socket
import threading
from dataclasses import replace
from multiprocessing import AuthenticationError

import pytest

from anabranch.runtime.continuous.channel import Address, Channel, ChannelClosed, Reception


class Served:
    """A reception that keeps what it is told."""

    def __init__(self):
        self.heard, self.over, self.channel = [], threading.Event(), None
        self.reception = Reception("localhost", self.serve)

    def serve(self, channel):
        self.channel = channel
        try:
            while True:
                self.heard.append(channel.receive())
        except ChannelClosed:
            channel.close()
            self.over.set()


@pytest.fixture
def served():
    served = Served()
    yield served
    served.reception.close()


def test_messages_come_in_order(served):
    channel = Channel.to(served.reception.address)
    for number in range(100):
        channel.send(number)
    channel.finish()

    served.over.wait()
    assert list(range(100)) == served.heard
    channel.close()


def test_what_was_said_last_is_heard_though_something_was_not_read(served):
    channel = Channel.to(served.reception.address)
    channel.send("hello")
    while served.channel is None:
        pass
    served.channel.send("never read")
    channel.send("last")
    channel.finish()

    served.over.wait()
    assert ["hello", "last"] == served.heard
    channel.close()


def test_nobody_without_the_secret_is_served(served):
    with pytest.raises(AuthenticationError):
        Channel.to(replace(served.reception.address, secret=b"another"))
    assert served.channel is None


def test_one_who_says_nothing_keeps_nobody_waiting(served):
    address = served.reception.address
    silent = socket.create_connection((address.host, address.port))

    channel = Channel.to(address)
    channel.send("here")
    channel.finish()

    served.over.wait()
    assert ["here"] == served.heard
    silent.close()
    channel.close()


def test_who_waits_for_a_message_notices_that_it_is_closed(served):
    channel = Channel.to(served.reception.address)
    told = []

    def wait():
        with pytest.raises(ChannelClosed):
            channel.receive()
        told.append(True)

    waiting = threading.Thread(target=wait)
    waiting.start()
    channel.close()
    waiting.join()

    assert [True] == told
    with pytest.raises(ChannelClosed):
        channel.send(1)


def test_an_address_does_not_tell_its_secret():
    assert "<Address here:1>" == repr(Address("here", 1, b"secret"))


def test_it_closes_whoever_is_about_to_connect():
    for _ in range(50):
        served = Served()
        Channel.to(served.reception.address).close()
        served.reception.close()
