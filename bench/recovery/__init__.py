"""A query whose processes are killed, and what its commits say of it."""
