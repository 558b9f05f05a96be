"""What a Spark must be like for a query to run on it."""

import pytest

from anabranch.errors import AnabranchError
from anabranch.spark.executor import require_one_host
from anabranch.spark.private import Executor


def test_executors_on_this_host_are_fine():
    require_one_host("here", [])
    require_one_host("here", [Executor("0", "here"), Executor("1", "localhost")])


def test_executors_on_another_host_are_refused_with_the_reason():
    with pytest.raises(AnabranchError, match=r"^Spark's executors are on other hosts: there\n"):
        require_one_host("here", [Executor("0", "here"), Executor("1", "there")])
