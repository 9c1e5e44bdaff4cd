"""Clock, ids, randomness, settings, telemetry and a service's lifetime, which other code receives
as parameters."""
