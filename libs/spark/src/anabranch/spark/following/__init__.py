"""Follows streams: offsets of a streaming query, admission, and consumption retention."""
