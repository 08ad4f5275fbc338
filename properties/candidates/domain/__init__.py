"""The calls that a spec takes, found by asking it: extents that change together, integers, options, kept facts."""
