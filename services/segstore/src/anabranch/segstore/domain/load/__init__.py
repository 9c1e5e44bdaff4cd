"""What a store tells of its load: counting, and the report of a period."""
