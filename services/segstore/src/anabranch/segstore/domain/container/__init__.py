"""The container's state machine: operations, state, decide, evolve, invariants."""
