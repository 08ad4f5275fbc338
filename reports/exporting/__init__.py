"""A run in the formats of others."""
