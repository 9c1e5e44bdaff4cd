"""One module per resource: the routes, and what they send to the cluster."""
