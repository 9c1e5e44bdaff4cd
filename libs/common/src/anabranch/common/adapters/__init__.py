"""Adapters of the shared ports to NATS JetStream."""
