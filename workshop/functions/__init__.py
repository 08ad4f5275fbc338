"""Generated custom functions, whose truth is known: an op that judges the machinery of custom functions."""

#: The op, as `opassay run` takes it in a checkout.
FUNCTION = "workshop.functions.declaration:FUNCTION"
