"""Reading: positions, blocks as events or Arrow batches, ranges and bounds."""
