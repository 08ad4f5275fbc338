"""Checks of values: each path of transforms of an implementation is compared with the same path of its formula."""
