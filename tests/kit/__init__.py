"""What tests stand on: simulated time and disk, fakes that pass their port's conformance suite."""
