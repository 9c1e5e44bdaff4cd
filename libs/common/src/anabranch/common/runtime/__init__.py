"""Clock, ids, randomness, settings and the lifetime of a service: what code may not reach for
by itself."""
