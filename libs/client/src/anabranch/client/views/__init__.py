"""Materialised views: a reader group's events, folded into the rows of a table, each exactly once.

Programs use `view`. `session` reads the events of one membership, `rounds` divides them among the
partitions, `partition` decides the updates of rows and `positions`, and `saving` performs them.
"""
