"""COMM: the check of an op that runs over ranks, each of which runs a program, or over devices of one program."""
