"""Reader groups: readers that share the segments of streams, and follow splits and merges.

`state` is what the readers agree on; `apply`, with `succession` and `checkpoints`, folds the log of
`updates` into it that all of them read; `balance` says who shall have what; `reader` performs it.
`admin` asks the controller.
"""
