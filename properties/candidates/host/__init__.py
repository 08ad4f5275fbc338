"""Candidates: what they are asked and answer, where they run, and the files that hold them."""
