"""One container: its operations, sessions, replies, reads and throttle."""
