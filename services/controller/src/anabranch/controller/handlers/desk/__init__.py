"""The dependencies that queries share: the desk, pages, kept answers, parked work."""
