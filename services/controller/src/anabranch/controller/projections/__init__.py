"""Read models folded from the domain events."""
