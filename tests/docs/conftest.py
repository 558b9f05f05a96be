"""One Spark for all pages, which is the process's own: `program.start()` finds it."""

from tests.spark.conftest import spark_context

__all__ = ["spark_context"]
