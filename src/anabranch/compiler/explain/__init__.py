"""A plan told back to the author of its program."""
