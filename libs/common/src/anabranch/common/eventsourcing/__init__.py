"""Event sourcing: the stores' ports, and the loop load → decide → check → append."""
