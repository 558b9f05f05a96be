"""Where records come from and where they go: the contracts, and one source or sink a file."""
