"""Programs that `spark-submit` runs in tests: each prints a line of JSON."""
