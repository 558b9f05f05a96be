"""What `./x bench scale` measures beside virtual time."""
