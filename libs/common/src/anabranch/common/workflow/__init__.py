"""The runner: while an aggregate has a next step, perform it and append its event."""
