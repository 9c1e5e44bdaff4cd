"""The commands for topics, partitions, SPUs and SPU groups, and for their records."""
