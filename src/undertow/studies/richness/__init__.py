"""Paper 002: how rich training was, by experiment."""
