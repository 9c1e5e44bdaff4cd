"""Clock, ids, randomness, settings, telemetry, a service's lifetime: what code may not reach for
by itself."""
