"""Table segments of a container at work: indexing, look-ups, scans, compaction."""
