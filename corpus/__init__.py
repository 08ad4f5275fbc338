"""Bugs of torch and of other libraries, as public issue threads tell them: one small program each.

`python -m corpus` says which of them the installed versions have, and `--seen` what of opassay sees each.
"""
