"""Whole workloads on Spark, each with all its input there at once."""
