"""What `./x bench scale` measures beside Schneider's graphs: his kernels, and growth."""
