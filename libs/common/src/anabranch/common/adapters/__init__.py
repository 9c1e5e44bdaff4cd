"""Adapters of the shared ports to NATS JetStream, to disks and to tier 2."""
