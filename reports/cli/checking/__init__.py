"""Commands that check the checker."""
