"""The negative log likelihood."""
