"""Workloads as programs in the public API, with their data and what must come out."""
