"""The plan of the pipeline `replay`, and its questions to the target."""
