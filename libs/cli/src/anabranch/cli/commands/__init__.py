"""The commands, one module per resource."""
