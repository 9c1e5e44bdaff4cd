"""Writing: from an event to an acknowledged block, over scales and lost connections."""
