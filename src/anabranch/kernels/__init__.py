"""What happens to one bundle: pure functions over frames; no Spark, threads, files or clock."""
