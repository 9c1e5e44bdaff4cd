"""Tables about streams: streams, segments, epochs, transactions, reader groups, stored blocks."""
