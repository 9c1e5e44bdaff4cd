"""Drivers of Spark in processes of their own, whose sinks fail on request."""
