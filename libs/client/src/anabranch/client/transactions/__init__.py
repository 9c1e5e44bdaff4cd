"""Transactions: events of a stream that become visible together at the commit, or never.

`calls` asks the controller; `fate` is this process's knowledge of a transaction's outcome; `pings`
keeps all open transactions alive. `writer` writes to a transaction's own segments: `transaction` is
a whole transaction, `part` a piece of one for a separate task. `begin` opens transactions, `admin`
is `client.transactions(stream)`.
"""
