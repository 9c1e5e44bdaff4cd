"""A real cluster that loses its power: what it acknowledged must be there when it starts again.

disk      a file system of its own whose power can be cut: what was not written is gone
processes the cluster as a tree of processes that is frozen and ended at once
ledger    what was asked and acknowledged, in a file on another file system, and the verdict
workload  the process that creates streams, writes events and commits transactions
run       one round: start, cut, start again, hold what is there against the ledger
planted   a cluster that acknowledges what is not on the disk, to see it found
"""
