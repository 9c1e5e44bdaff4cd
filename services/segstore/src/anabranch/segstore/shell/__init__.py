"""What waits: container life, reads, tiering. Decisions are in `domain`."""
