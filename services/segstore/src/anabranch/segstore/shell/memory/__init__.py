"""The part of a container's segments that is in memory: cache, read index, tails."""
