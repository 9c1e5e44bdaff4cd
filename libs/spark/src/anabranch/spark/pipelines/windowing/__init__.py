"""Parts of the pipeline `windows`."""
