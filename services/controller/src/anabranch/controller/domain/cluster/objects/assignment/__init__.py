"""Replica assignment: the SPUs that get the replicas of a topic's partitions. Deterministic."""
