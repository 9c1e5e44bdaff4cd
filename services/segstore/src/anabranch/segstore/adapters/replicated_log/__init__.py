"""The log that stores replicate among each other: docs/adr/0014-how-stores-replicate-a-log.md.

copies, copy, records   the copies in this store's journal
log                     `DurableDataLog` of the containers that this store leads
opening                 the steps by which an owner opens a log
view, window            one open log: frames in flight, acknowledgements
isr                     the members of the ISR, and its changes
feeder                  keeps the copy of one follower up to date
"""
