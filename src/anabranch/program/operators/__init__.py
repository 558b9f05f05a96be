"""The operators of a program: one frozen value each, made only if they mean something."""
