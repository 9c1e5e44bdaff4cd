"""What every query needs: the desk, pages, kept answers, parked work."""
