"""Pictures of results files, as SVG."""
