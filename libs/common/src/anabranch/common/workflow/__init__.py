"""The runner: while there is a next step, do it and append its event."""
