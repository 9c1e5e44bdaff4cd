"""A long run of readers of a group that are killed while the stream is scaled and stores die."""
