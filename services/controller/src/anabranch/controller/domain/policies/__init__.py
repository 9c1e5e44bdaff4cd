"""Policies: arithmetic over measurements. They decide and explain; others act."""
