"""Transactions: events of a stream that become visible together at the commit, or never.

`calls` asks the controller; `fate` is this process's knowledge of a transaction's outcome; `pings`
keeps all open transactions alive. `writer` writes to a transaction's own segments: `transaction` is
a whole transaction, `part` a piece of one for a separate task. `begin` opens transactions, `admin`
is `client.transactions(stream)`.

`short` is a transaction whose events are `kept` until its commit. `committing` stores them as one
`group`, divided by the stream's `layout`, under one of the client's `pens`, or makes it long; it is
long also while long ones of this client are `unmerged`.
"""
