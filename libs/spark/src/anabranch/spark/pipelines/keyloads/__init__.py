"""Parts of the pipeline `keyload`."""
