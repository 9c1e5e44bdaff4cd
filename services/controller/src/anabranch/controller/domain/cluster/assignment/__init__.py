"""Replica assignment: which SPUs get the replicas of a topic's partitions. Pure and deterministic."""
