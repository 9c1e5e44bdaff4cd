"""Kafka as a peer: its brokers, and its topics as streams of the benchmark."""
