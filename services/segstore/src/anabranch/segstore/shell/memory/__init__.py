"""What a container holds in memory of its segments: cache, read index, tails."""
