"""The systems that are compared, and the servers they need."""
