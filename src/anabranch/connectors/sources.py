"""Where records come from: `ab.sources`."""

from anabranch.connectors.base import Source
from anabranch.connectors.file_source import Files
from anabranch.connectors.generator import Generator
from anabranch.connectors.records import Records

__all__ = ["Files", "Generator", "Records", "Source"]
