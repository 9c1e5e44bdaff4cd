"""Streams in PySpark: the data source of the format `anabranch`, and pipelines on it."""
