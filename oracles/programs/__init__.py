"""A failure as a program: torch and the implementation alone, exit status 1 while the fault is there."""
