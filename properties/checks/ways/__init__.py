"""The ways in which a user may call an op, and what each of them must give."""
