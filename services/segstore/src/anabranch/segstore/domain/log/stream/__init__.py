"""A container's log in a stream of another engine: its messages, and which of them count."""
