"""The parts that wait: container life, reads, tiering. Decisions are in `domain`."""
