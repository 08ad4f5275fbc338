"""Commands that look at several runs: compare and history."""
