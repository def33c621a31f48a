"""Paper 000: how shallow and deep layers fit across time, by experiment."""
