"""What a certificate says of an op beside the verdicts on it: its declaration, its contract, and its source."""
