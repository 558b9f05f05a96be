"""What the soak runs, and what is looked at while it runs."""
