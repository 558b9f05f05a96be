"""Operators that keep nothing (M8)."""
