"""The files of the pipelines `archive` and `replay`: places, manifests, writing, reading."""
