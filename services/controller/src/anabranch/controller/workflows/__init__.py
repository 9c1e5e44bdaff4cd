"""One file per workflow: its wake condition, and the reasons for its order and idempotency."""
