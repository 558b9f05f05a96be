"""Decided: the log, watermarks, and how far each epoch is. Metadata only: no data, no clock."""
