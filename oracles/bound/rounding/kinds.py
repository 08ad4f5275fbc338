"""Kinds of primitives, by name: properties of their results that hold for all operands."""

from __future__ import annotations

from ....reference.array import BILINEAR

#: Primitives whose results are never negative; and those whose results are not negative where no operand is.
NEVER_NEGATIVE = frozenset(
    {"square", "absolute", "sqrt", "exp", "sigmoid", "exp2", "cosh", "arccosh", "arccos", "erfc", "hypot"}
)
KEEP_SIGN = frozenset(
    {"add", "multiply", "divide", "power", "minimum", "maximum", "where", "sum", "prod", "max", "store"}
    | {"cumsum", "cumprod", "sort", "windows", "overlap"}
    | {"reshape", "transpose", "broadcast", "getitem", "scatter", "concatenate", *BILINEAR}
    | {"sinh", "arctan", "arcsinh", "cbrt", "floor", "ceil", "rint", "trunc", "sign", "fmod", "float_power"}
)

#: Primitives that give elements of their operands: they are as finite as those.
MOVED = frozenset(
    {"negative", "absolute", "maximum", "minimum", "where", "attach", "max", "sort", "windows", "store"}
    | {"reshape", "transpose", "broadcast", "getitem", "concatenate"}
)

#: Primitives whose elements are computed of all elements before them.
RUNNING = frozenset({"cumsum", "cumprod"})

#: Logarithms: that of a zero without errors is -inf in every evaluation.
LOGARITHMS = frozenset({"log", "log2", "log10"})

#: Primitives that compute: the others move or choose elements, and the radii with them.
COMPUTED = frozenset(
    {"add", "subtract", "multiply", "divide", "square", "sqrt", "exp", "expm1", "log", "log1p", "tanh", "sigmoid"}
    | {"sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "arcsinh", "arccosh", "arctanh"}
    | {"exp2", "log2", "log10", "cbrt", "erf", "erfc", "arctan2", "hypot", "logaddexp", "fmod", "float_power"}
    | {"floor", "ceil", "rint", "trunc", "sign", "power", "sum", "prod"}
)
