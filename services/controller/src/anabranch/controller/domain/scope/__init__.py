"""The scope aggregate: a name space for streams."""
