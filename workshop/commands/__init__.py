"""The commands of `python -m workshop`, and the tables that they print."""
