"""Subjects: what one documents of itself, and how an op runs in several places."""
