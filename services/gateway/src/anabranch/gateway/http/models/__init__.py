"""Bodies of requests and answers, and how they map to the contracts."""
