"""Streams and tables together (M13, M14)."""
