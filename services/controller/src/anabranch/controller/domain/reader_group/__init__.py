"""The reader group aggregate: what a group is configured to be, and what it needs of others."""
