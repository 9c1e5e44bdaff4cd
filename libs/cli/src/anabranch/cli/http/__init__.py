"""Commands through the HTTP gateway; see docs/http.md for what is called."""
