"""Queries that only read, one module per resource."""
