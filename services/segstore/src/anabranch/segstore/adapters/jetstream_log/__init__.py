"""A container's durable log as one stream of a remote event log, such as NATS JetStream."""
