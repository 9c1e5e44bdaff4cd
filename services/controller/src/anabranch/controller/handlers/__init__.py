"""What comes from outside: commands and queries."""
