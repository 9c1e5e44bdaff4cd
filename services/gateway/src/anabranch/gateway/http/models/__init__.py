"""Bodies of requests and answers, and their conversion to and from contracts."""
