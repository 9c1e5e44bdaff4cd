"""Queries about SPUs, SPU groups, topics and partitions, and actions on them."""
