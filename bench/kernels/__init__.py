"""What the benchmarks of kernels measure: tasks as a worker calls them, and the same by hand."""
