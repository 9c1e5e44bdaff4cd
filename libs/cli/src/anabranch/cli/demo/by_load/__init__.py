"""The command `demo-scaling`: flights at a changing rate, which the stream follows by itself."""
