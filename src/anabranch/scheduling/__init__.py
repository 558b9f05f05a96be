"""Decided: which ready work runs next, on behalf of all queries."""
