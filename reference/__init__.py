"""What is TRUE: formulas, formats, exact arithmetic, derivatives. mpmath and NumPy, never torch."""
