"""Reader groups: readers that share the segments of streams among themselves."""
