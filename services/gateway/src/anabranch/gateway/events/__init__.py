"""Events in and out of streams, without HTTP: bodies, open writers, reads, tokens."""
