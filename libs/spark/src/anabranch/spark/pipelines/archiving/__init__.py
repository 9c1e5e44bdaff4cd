"""What the pipelines `archive` and `replay` do with files: places, manifests, writing, reading."""
