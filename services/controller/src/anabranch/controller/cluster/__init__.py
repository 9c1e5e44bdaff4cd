"""Nodes, placements and the constants of the cluster."""
