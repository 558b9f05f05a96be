"""What is remembered: stores, deltas, the commit protocol, recovery; defines nothing."""
