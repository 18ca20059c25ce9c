"""Pictures: every one a function that returns a Figure."""
