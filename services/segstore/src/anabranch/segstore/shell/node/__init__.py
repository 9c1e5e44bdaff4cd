"""The store as a node: its containers' lives, registration, load."""
