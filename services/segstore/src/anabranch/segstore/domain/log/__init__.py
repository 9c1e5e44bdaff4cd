"""Formats and scanning rules of the journal."""
