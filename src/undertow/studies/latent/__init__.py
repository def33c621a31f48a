"""Paper 001: what layers still know while a model memorises wrong labels, by experiment."""
