"""Tunnels: the bytes of clients' connections to segment stores, which lead through the gateway."""
