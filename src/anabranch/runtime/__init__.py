"""The shell that all drivers share: what a task does, how a query goes on from cycle to cycle."""
