"""Entries of key-value tables, without HTTP: open tables, updates, reads, watches and records."""
