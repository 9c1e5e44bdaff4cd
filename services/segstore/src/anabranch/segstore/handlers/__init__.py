"""One function per request; the TCP server and the NATS entry are two doors to them."""
