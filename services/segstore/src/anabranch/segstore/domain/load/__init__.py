"""A store's load: the counting of appends, and the report of a period."""
