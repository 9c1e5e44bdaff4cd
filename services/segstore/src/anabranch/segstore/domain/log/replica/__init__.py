"""Decisions about the copies of a replicated log. Pure."""
