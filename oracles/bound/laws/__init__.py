"""Laws of linear algebra: what a result may leave of its equation, for factors, solutions and spectra."""
