"""Facts about an op for its certificate, beside the verdicts: its declaration, its contract, and its source."""
