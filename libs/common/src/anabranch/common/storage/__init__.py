"""Tier 2 in use: its port, and reading manifests, catalogs and chunks through it."""
