"""Many queries on one Spark: their sources, shapes and runs."""
