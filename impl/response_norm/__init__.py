"""Local response normalisation."""
