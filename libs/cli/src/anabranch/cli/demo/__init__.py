"""The command `demo`: a year of real flights through a real cluster, checked to the last row."""
