"""Where rows go: `ab.sinks`."""

from anabranch.connectors.base import Sink
from anabranch.connectors.file_sink import Files
from anabranch.connectors.memory import Memory

__all__ = ["Files", "Memory", "Sink"]
