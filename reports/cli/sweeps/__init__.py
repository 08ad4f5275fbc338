"""The command about elementary functions, and how its table is written."""
