"""The results of judging: cells and verdicts as data, violations, case files. `verdict`, `cleaning` need no torch."""
