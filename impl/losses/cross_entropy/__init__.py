"""Cross entropy."""
