"""Decompositions by which torch's own forward AD is made right."""
