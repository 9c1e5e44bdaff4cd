"""Deciding commands: the kind of aggregate that takes each, and the circumstances."""
