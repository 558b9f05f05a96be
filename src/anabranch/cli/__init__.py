"""The command line."""

from anabranch.cli.command import main

__all__ = ["main"]
