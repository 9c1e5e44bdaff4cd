"""The scope aggregate: a namespace of streams, reader groups and key-value tables."""
