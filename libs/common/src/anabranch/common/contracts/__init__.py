"""Messages that cross a process by NATS, and the subjects that they travel on. Pure."""
