"""Ranks, each a program of its own: what they ask of each other, on what it runs, and batch norm over all of them."""
