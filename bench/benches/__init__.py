"""The benchmarks, one a file: its docstring says what it measures, `measure(stand)` gives rows."""
