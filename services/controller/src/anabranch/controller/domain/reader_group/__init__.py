"""The reader group aggregate: a group's configuration, and its needs of other aggregates."""
