"""The stream aggregate: the segments of a stream, and its life."""
