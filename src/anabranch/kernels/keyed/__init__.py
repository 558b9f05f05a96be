"""Operators with state a key (M11, M12, M14)."""
