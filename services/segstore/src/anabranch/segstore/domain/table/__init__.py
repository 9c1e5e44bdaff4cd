"""Table segments: the entries of key-value tables. Pure."""
