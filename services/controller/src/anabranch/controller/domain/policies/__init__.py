"""Policies: arithmetic over measured values. They decide and explain; others act."""
