"""Prototypes of the shapes that Spark jobs could have, to choose among by measuring."""
