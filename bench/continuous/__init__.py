"""What the benchmark of the continuous engine runs and looks at; defines nothing."""
