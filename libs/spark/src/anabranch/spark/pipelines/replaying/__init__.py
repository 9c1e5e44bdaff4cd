"""What the pipeline `replay` decides and asks, besides its program."""
