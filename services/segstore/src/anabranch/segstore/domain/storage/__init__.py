"""Formats and plans of tier 2: chunks, manifests, pages, flushes."""
