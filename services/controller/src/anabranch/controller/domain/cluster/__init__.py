"""Decisions about the cluster: members, placements, SPUs, topics and partitions. Pure."""
