"""The records of topics for many callers: produced through shared producers, read from offsets."""
