"""What judging gives: cells and verdicts as data, violations, case files. `verdict` and `cleaning` need no torch."""
