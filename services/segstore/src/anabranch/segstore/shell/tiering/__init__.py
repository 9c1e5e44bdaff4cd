"""The way to tier 2 and back: flusher, manifests, pages, collection."""
