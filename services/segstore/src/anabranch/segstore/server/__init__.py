"""The two doors: TCP and NATS."""
