"""The `anabranch` command: `up`, the data commands, the demo."""
