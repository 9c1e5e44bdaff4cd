"""Handlers of requests from outside: commands and queries."""
