"""Pure decisions of the segment store: no clock, no I/O, no event loop."""
