"""Streams of one segment: byte streams, revisioned streams and shared state."""
