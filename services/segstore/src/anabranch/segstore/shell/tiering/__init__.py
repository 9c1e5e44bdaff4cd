"""Moving bytes to tier 2 and reading them back: flusher, manifests, pages, collection."""
