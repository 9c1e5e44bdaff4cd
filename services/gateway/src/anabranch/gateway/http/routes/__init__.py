"""The routes, one module per resource; each translates requests into calls of the client."""
