"""The parts of the pipeline `audit`: checks of descriptions, checks of blocks, report, plot."""
