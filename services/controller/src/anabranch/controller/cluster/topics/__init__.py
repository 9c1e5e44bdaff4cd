"""The controllers of SPUs, SPU groups, topics and partitions: ADR 15.

Each waits for a change of its inputs, computes actions with a pure reducer of `domain.cluster`, and
hands them to the dispatcher, while this controller leads.
"""
