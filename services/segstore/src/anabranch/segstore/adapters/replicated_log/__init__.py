"""Logs that stores replicate among each other: docs/adr/0014-how-stores-replicate-a-log.md."""
