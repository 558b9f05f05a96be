"""What the epochs benchmark runs: its streams, its queries, and a run of one of them on Spark."""
