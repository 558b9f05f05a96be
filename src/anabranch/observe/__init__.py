"""Seen: what a query says of itself, in figures and in words."""
