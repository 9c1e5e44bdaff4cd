"""A real cluster under kill -9, held against ledgers that lie outside of it.

plan          which blow comes next, from a seed: pure
ledger        what one writer was told, in a file of its own
writer        the process that writes events and ledgers
verdict       what was read, held against all ledgers: pure
tier2_stream  the stream as tier 2 alone shows it
run           the cluster, the writers, the blows and the two readings
planted_store the store with a bug that must be found
"""
