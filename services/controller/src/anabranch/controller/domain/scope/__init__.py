"""The scope aggregate: a namespace of streams."""
