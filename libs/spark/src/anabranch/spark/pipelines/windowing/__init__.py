"""What the pipeline `windows` does with windows: their columns, directory and plot."""
