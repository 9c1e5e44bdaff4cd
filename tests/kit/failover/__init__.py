"""A cluster of three stores under random faults, held against ledgers.

shape         what differs between trials: the log, the NATS servers, the kinds of faults
plan          which fault comes next, from a seed: pure
transactions  what one caller of transactions was told, and what must be true of them: pure
transactor    the process that commits transactions and keeps that ledger
outages       how long writers waited, by the kind of the fault: pure
divergence    whether two readings hold the same events of each key in the same order: pure
cluster       the faults themselves
copies        which stores may lose their disks
load          the processes of writers, of transactions, and of readers of a group
run           the cluster, the load, the faults, and the readings

Writers and their ledgers are those of `kit.chaos`, readers of the group those of `kit.soak`.
"""
