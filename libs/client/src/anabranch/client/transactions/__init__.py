"""Transactions: events of a stream that are committed together, or never seen by anybody.

`calls` asks the controller; `fate` is what this process knows of a transaction's outcome; `pings`
keeps all open ones alive. `writer` writes to a transaction's own segments: `transaction` is one as
a whole, `part` a piece of one for a task of its own. `begin` opens them, `admin` is
`client.transactions(stream)`.
"""
