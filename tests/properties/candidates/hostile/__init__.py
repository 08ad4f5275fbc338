"""Candidates that attack their judge, and right ones that look odd: each with the verdict that it must get."""
