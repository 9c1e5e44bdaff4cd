"""Adapters of the controller's ports."""
