"""One file per workflow: what it wakes on, why in this order, why it is safe to repeat."""
