"""`python -m workshop.words`: the page docs/words.md, from the tables of words."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from typing import Any

import numpy as np

from opassay.reference import array
from opassay.reference.array import SPECIAL, WORDS
from opassay.reference.array.methods import OWN, SAME_NAME

_HEAD = """\
# What a formula may say

A formula is ordinary NumPy, and opassay reads it as exact numbers, as bounds of rounding errors, and as derivatives.
It may use the functions, methods and operators of this page; all of them are compositions of a few primitives that have
a rule in every reading. Anything else ends with an error that names the nearest word.

Three things differ from NumPy:

- Arrays have no dtype. A formula is about real numbers; `x.astype(np.float16)` and `x.astype(np.float32)` are roundings
  that the formula asks for, and a constant such as `np.pi` is the float that it is.
- Nothing is written. `x += y` makes a new array, and another name of the old one keeps the old value; `x[0] = y` is an
  error.
- Nothing becomes a Python number. `float(x)` and `math.exp(x)` are errors, and a branch `if x > 0` is one where
  rounding may decide it: `np.where` takes both sides into account.
"""
_GROUPS = {
    "elementwise": "Functions of elements",
    "selection": "Choices, limits and questions",
    "reductions": "Reductions",
    "products": "Products of matrices",
    "contractions": "Other products",
    "shapes": "Shapes",
    "rearranging": "Putting together and taking apart",
}
_TAIL = """\
## Beside NumPy

`opassay.reference.array` has `erf`, `erfc`, `gammaln`, `polygamma(n, x)` and `sigmoid`, which NumPy lacks; `store` (a
rounding to the format of a stored intermediate; with `STORAGE`, of its derivatives, too), `constant` (a value that no
derivative flows through), `attach` (a value with the slope of another expression), `choose` (a choice whose slope at
the tie is stated) and `amax` (a maximum whose slope ties share).
"""


def _home(rule: Any) -> str:
    """The module of words that a rule stands in; NumPy's own functions among the rules are elementwise ones."""
    package, _, module = str(getattr(rule, "__module__", "")).rpartition(".")
    return module if package == array.__name__ else "elementwise"


def _name(func: Any) -> str:
    module = getattr(func, "__module__", "") or "numpy"
    return f"{module.replace('numpy', 'np', 1)}.{func.__name__}" if module.startswith("numpy.linalg") else func.__name__


def _wrap(names: list[str]) -> str:
    return textwrap.fill(", ".join(f"`{name}`" for name in names), 120)


def page() -> str:
    """The text of docs/words.md."""
    groups = defaultdict(set)
    for func, rule in WORDS.items():
        groups[_home(rule)].add(_name(func))
    parts = [_HEAD]
    for home in [*_GROUPS, *sorted(set(groups) - set(_GROUPS))]:
        title = _GROUPS.get(home, home.capitalize())
        parts.append(f"## {title}\n\n{_wrap(sorted(groups[home]))}\n")
    methods = sorted({*SAME_NAME, *OWN} - {"view"})
    have = [name for name in methods if name in OWN or getattr(np, name) in WORDS]
    parts.append(f"## Methods and attributes of arrays\n\n{_wrap(have)}\n")
    operators = (
        "`+ - * / // % ** @`, `abs`, `divmod`, comparisons, `& | ~` of conditions, indexing by slices and integers"
    )
    parts.append(f"## Operators\n\n{textwrap.fill(operators, 120, break_on_hyphens=False)}\n")
    parts.append(f"## Of `scipy.special`\n\n{_wrap(sorted(SPECIAL))}\n")
    return "\n".join([*parts, _TAIL])


if __name__ == "__main__":
    print(page(), end="")
