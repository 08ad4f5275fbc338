"""Along which tree an implementation adds up: shown by calls of it, and named as a contract names it."""
