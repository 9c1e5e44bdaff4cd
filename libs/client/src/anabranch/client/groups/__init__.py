"""Reader groups: readers that share the segments of streams, and follow splits and merges.

`state` is the state that the readers agree on; `apply`, with `succession` and `checkpoints`, folds
the log of `updates` into it, which all readers read; `balance` decides which reader gets which
segments; `reader` performs it. `admin` asks the controller.
"""
