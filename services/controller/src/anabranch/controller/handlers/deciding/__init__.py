"""Decisions on commands: the kind of aggregate that each changes, and the circumstances."""
