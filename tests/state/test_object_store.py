"""A checkpoint's files in an object store: what is lost on the way, and what is told to the user."""

import pickle
import socket
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from anabranch import objects
from anabranch.errors import CheckpointError, ProgramError, RunError
from anabranch.objects import ObjectUrl
from anabranch.state import object_store
from anabranch.state.layout import Lease, lease_path
from anabranch.state.object_store import ObjectStore
from anabranch.state.store import AlreadyThere
from anabranch.state.stores import checkpoint_at, place_of, store_at
from tests.state.unreliable_s3 import UnreliableS3


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """Requests are sent again at once."""
    moment = timedelta(milliseconds=1)
    backoff = {"init_backoff": moment, "max_backoff": 4 * moment, "base": 2}
    monkeypatch.setattr(objects, "RETRIES", {"max_retries": 2, "backoff": backoff})


@pytest.fixture
def unreliable(bucket, s3_server, monkeypatch):
    with UnreliableS3(s3_server) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.address)
        yield server


@pytest.fixture
def store(bucket):
    return store_at(place_of(f"{bucket}/one"))


@pytest.mark.parametrize("fate", ["lost", "failed"])
def test_a_file_whose_answer_was_lost_is_ours(unreliable, store, fate):
    """The request is sent again and refused, because of the first one."""
    unreliable.plan.append(fate)

    store.create("commits/1", b"ours")

    assert 2 == unreliable.puts, "the test is of nothing unless it was sent again"
    assert b"ours" == store.read("commits/1")
    with pytest.raises(AlreadyThere):
        store.create("commits/1", b"ours")


def test_the_same_bytes_of_another_are_not_ours(unreliable, store):
    """As two copies of one checkpoint to the same place: what is in a file does not say whose it is."""
    ObjectStore(store.url).create("commits/1", b"the same")
    unreliable.plan.extend(["lost"])

    with pytest.raises(AlreadyThere):
        store.create("commits/1", b"the same")


def test_of_two_that_lose_their_answers_one_has_the_lease(unreliable, store):
    other = ObjectStore(store.url)
    unreliable.plan.extend(["lost", "well", "lost", "well"])

    other.create(lease_path(1), Lease(1, "a", "host:1").to_bytes())
    with pytest.raises(AlreadyThere):
        store.create(lease_path(1), Lease(1, "b", "host:2").to_bytes())

    assert "a" == Lease.from_bytes("", store.read(lease_path(1))).run_id


def test_a_name_that_is_said_to_be_taken_while_nothing_is_there_is_tried_again(unreliable, store):
    """S3 says 409 while another request for the name is under way, which may come to nothing."""
    unreliable.plan.append("conflict")

    store.create("commits/1", b"ours")

    assert b"ours" == store.read("commits/1")


def test_a_conflict_that_does_not_end_is_told(unreliable, store):
    unreliable.plan.extend(["conflict"] * 20)

    with pytest.raises(RunError, match="says that the name is taken, and there is nothing"):
        store.create("commits/1", b"ours")


def test_a_store_that_overwrites_is_refused(unreliable, store):
    unreliable.plan.extend(["unconditional"] * 2)

    with pytest.raises(RunError, match="it has no conditional puts"):
        store.require_fit()

    assert {} == store._bucket.sizes("")


def test_a_store_that_is_fit_has_nothing_in_it_after(store):
    store.require_fit()

    assert {} == store._bucket.sizes("")


def test_a_place_that_holds_something_else_is_refused(store):
    store.create("results/1", b"")

    with pytest.raises(CheckpointError, match="is no checkpoint: it holds other files") as caught:
        store.require_fit()

    assert "results/1" == caught.value.have
    store.create("metadata", b"")
    store.require_fit()


def test_what_a_crash_left_is_not_listed_and_is_swept(store):
    store._bucket.create(".probe-1", b"")
    store.create("metadata", b"")

    assert ["metadata"] == store.list("")
    store.sweep()

    assert ["metadata"] == [*store._bucket.sizes("")]


def test_a_small_file_that_is_huge_is_not_read(store, monkeypatch):
    monkeypatch.setattr(object_store, "LARGEST", 10)
    store.create("commits/1", b"x" * 11)
    store.create("state/n/1", b"x" * 11)

    with pytest.raises(RunError, match=r"cannot read s3://.*/one/commits/1\n.*more than any file"):
        store.read("commits/1")
    assert b"x" * 11 == store.read("state/n/1")


def test_nothing_is_a_checkpoint_and_looking_makes_none(store):
    assert checkpoint_at(store.url) is None
    assert [] == store.list("")

    store.create("metadata", b"")

    assert b"" == checkpoint_at(store.url).read("metadata")


def test_a_bucket_that_is_not_there_is_told(bucket):
    store = ObjectStore(ObjectUrl.of("s3://no-such-bucket/one"))

    for do in (lambda: store.create("a", b""), lambda: store.read("a"), lambda: store.list("")):
        with pytest.raises(RunError, match="there is no such bucket") as caught:
            do()
        assert "make the bucket first, or mend the URL" == caught.value.so


def test_credentials_that_are_missing_are_told(store, closed_port, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{closed_port}")

    with pytest.raises(RunError, match="no credentials were found") as caught:
        store.create("a", b"")

    assert "environment of all processes" in caught.value.so


def test_credentials_that_are_refused_are_told(unreliable, store):
    unreliable.plan.append("denied")

    with pytest.raises(RunError, match=r"refuses these credentials \(AccessDenied: Access Denied"):
        store.create("a", b"")


def test_a_network_that_is_down_is_told(store, closed_port, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed_port}")

    with pytest.raises(RunError, match=r"cannot write s3://.*/one/a\n") as caught:
        store.create("a", b"")

    assert caught.value.why.startswith("it cannot be reached")
    assert "check the network" in caught.value.so


def test_an_endpoint_without_encryption_must_be_meant(store, monkeypatch):
    monkeypatch.delenv("AWS_ALLOW_HTTP")

    with pytest.raises(RunError, match="AWS_ALLOW_HTTP=true if that is meant"):
        store.create("a", b"")


@pytest.fixture
def closed_port():
    """A port at which nobody listens, kept from others while it is so."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_no_secret_travels(store, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    store.create("metadata", b"")

    sent = pickle.dumps(store)

    assert b"canary" not in sent
    assert b"testing" not in sent
    assert "canary" not in repr(store)


def test_a_url_with_a_secret_is_refused_without_telling_it():
    with pytest.raises(ProgramError) as caught:
        place_of("s3://key:canary@bucket/one")

    assert "s3://***@bucket/one has credentials in it" == caught.value.what
    assert "canary" not in str(caught.value)
    assert 'place_of("s3://***@bucket/one")' == caught.value.site.text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("hdfs://host/one", "a checkpoint cannot be kept at hdfs://host/one"),
        ("memory://one", "a checkpoint cannot be kept at memory://one"),
        ("s3://", "s3:// names no place"),
        ("s3://bucket/a/../b", "names no place"),
        ("s3://bucket/a?region=eu", "names no place"),
        ("file://host/one", "file://host/one names no file of this host"),
        (Path("s3://bucket/one"), "s3:/bucket/one was a URL before it became a Path"),
    ],
)
def test_a_place_that_cannot_be_is_refused(given, message):
    with pytest.raises(ProgramError) as caught:
        place_of(given)

    assert message in caught.value.what
    assert Path(__file__).name in caught.value.file


def test_an_extra_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)

    with pytest.raises(ProgramError) as caught:
        place_of("s3://bucket/one")

    assert "a checkpoint at s3://bucket/one needs obstore, which is not installed" == (
        caught.value.what
    )
    assert 'install it: pip install "anabranch[objects]"' == caught.value.so


def test_paths_are_paths_and_so_are_file_urls(tmp_path):
    assert tmp_path == place_of(str(tmp_path))
    assert tmp_path == place_of(tmp_path)
    assert tmp_path == place_of(tmp_path.as_uri())
    assert Path("a:b/c") == place_of("a:b/c")
