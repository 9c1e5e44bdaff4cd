"""Decisions as pure functions: scopes, streams, placement."""
