"""Checks of values: every path of transforms of an implementation against the same path of its formula."""
