"""The key-value table aggregate: a table's configuration, and its partitions by epoch."""
