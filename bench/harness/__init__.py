"""What all benchmarks share: values, statistics, measuring, tables, results files."""
