"""StreamBox's benchmarks at a rate, on Spark."""
