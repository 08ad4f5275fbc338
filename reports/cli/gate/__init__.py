"""Commands that guard a branch: the check, and what tends its two files, known.json and budget.json."""
