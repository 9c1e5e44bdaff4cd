"""Pipelines on streams: programs for `python -m` and `spark-submit` alike."""
