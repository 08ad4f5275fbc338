"""Kinds of primitives, by name: properties of their results that hold for all operands."""

from __future__ import annotations

from ....reference.array import BILINEAR, ELEMENTWISE, MOVING, SCANS, STRUCTURAL

#: Primitives whose results are never negative; and those whose results are not negative where no operand is.
NEVER_NEGATIVE = frozenset(
    {"square", "absolute", "sqrt", "exp", "sigmoid", "exp2", "cosh", "arccosh", "arccos", "erfc", "hypot"}
)
KEEP_SIGN = frozenset(
    {"add", "multiply", "divide", "power", "minimum", "maximum", "where", "sum", "prod", "max", "store", "cast"}
    | {"attach", "sinh", "arctan", "arcsinh", "cbrt", "floor", "ceil", "rint", "trunc", "sign", "fmod", "float_power"}
    | {*STRUCTURAL, *SCANS, *BILINEAR}
)

#: Primitives whose elements are computed of all elements before them.
RUNNING = frozenset({"cumsum", "cumprod"})

#: Logarithms: that of a zero without errors is -inf in every evaluation.
LOGARITHMS = frozenset({"log", "log2", "log10"})

#: Primitives that compute: the others move or choose elements, and the radii with them.
COMPUTED = ELEMENTWISE - MOVING | {"sum", "prod", "cast"}
