"""A process that has loaded torch and the judge, of which each `opassay judge` may be a copy.

Two thirds of a small judgement are imports. The process is private to its user, loads nothing of any candidate, ends
by itself, and is never needed: whoever cannot have a copy does everything in a process of his own.
"""
