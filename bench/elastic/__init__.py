"""Queries that change their width, lose a process or grow, and how their commits show it."""
