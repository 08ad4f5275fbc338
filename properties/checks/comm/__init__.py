"""The check of an op over several places: ranks, each with a program of its own, and devices of one program."""
