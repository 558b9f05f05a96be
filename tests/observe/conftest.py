"""The Spark of the other tests: whoever asks second gets the one that is there."""

from tests.spark.conftest import spark_context

__all__ = ["spark_context"]
