"""Event time: where a position lies between watermarks, and where a time lies in a stream."""
