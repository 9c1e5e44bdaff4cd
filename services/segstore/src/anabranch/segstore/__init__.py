"""The segment store: append-only byte segments, durable in a journal, tiered to objects."""
