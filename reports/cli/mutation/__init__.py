"""The command about mutants, its log, and how its table is written."""
