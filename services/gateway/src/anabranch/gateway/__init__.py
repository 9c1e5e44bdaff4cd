"""The gateway: streams and events over HTTP, by the client library alone."""
