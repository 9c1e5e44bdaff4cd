"""Tier 2 as values: names, chunks, manifests, snapshot pages, the catalog, streams (pure)."""
