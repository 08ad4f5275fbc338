"""Mutants: copies of the production ops with one small mistake each, and whether the questions refuse them."""
