"""opassay: production PyTorch ops that are right under every transform, and the proof.

The ops are in `opassay.impl` and need torch alone. The names here belong to the framework that judges them; they load
on first use, so that `import opassay` is instant and pulls in neither mpmath nor pytest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Only type checkers and editors read these imports; at run time `__getattr__` serves the names. `as` marks each of them
# as public, which a plain import in a typed package is not.
if TYPE_CHECKING:
    from opassay import pytest as pytest
    from opassay.oracles.bound.terms import PRESETS as PRESETS
    from opassay.oracles.bound.terms import Terms as Terms
    from opassay.oracles.op.declaration import Draft as Draft
    from opassay.oracles.op.declaration import Law as Law
    from opassay.oracles.op.declaration import Op as Op
    from opassay.oracles.op.declaration import Promises as Promises
    from opassay.oracles.op.declaration import Refusal as Refusal
    from opassay.oracles.op.declaration import Sample as Sample
    from opassay.oracles.op.documented import Documented as Documented
    from opassay.oracles.op.documented import Limit as Limit
    from opassay.oracles.op.placement import Devices as Devices
    from opassay.oracles.op.placement import Homes as Homes
    from opassay.oracles.op.placement import Ranks as Ranks
    from opassay.oracles.verdicts.verdict import Cell as Cell
    from opassay.oracles.verdicts.verdict import Code as Code
    from opassay.oracles.verdicts.verdict import Outcome as Outcome
    from opassay.oracles.verdicts.verdict import Verdict as Verdict
    from opassay.oracles.verdicts.violation import Unsupported as Unsupported
    from opassay.properties.candidates.conformance import Bound as Bound
    from opassay.properties.candidates.conformance import assert_conforms as assert_conforms
    from opassay.properties.candidates.conformance import bound as bound
    from opassay.properties.candidates.judging import judge as judge
    from opassay.properties.candidates.specification import Formula as Formula
    from opassay.properties.candidates.specification import SpecError as SpecError
    from opassay.properties.catalog.loading import load_op as load_op
    from opassay.properties.declaring import drawing as drawing
    from opassay.properties.declaring import laws as laws
    from opassay.properties.declaring import refusals as refusals
    from opassay.properties.declaring import strategies as strategies
    from opassay.properties.declaring.declare import declare as declare
    from opassay.properties.functions.kernel import KERNEL_PROPERTIES as KERNEL_PROPERTIES
    from opassay.properties.functions.kernel import Offer as Offer
    from opassay.properties.functions.kernel import custom_kernel as custom_kernel
    from opassay.properties.functions.user import custom_function as custom_function
    from opassay.properties.summary import ok as ok
    from opassay.properties.summary import table as table
    from opassay.properties.verification import Settings as Settings
    from opassay.properties.verification import kernel_of_op as kernel_of_op
    from opassay.properties.verification import replay_case as replay_case
    from opassay.properties.verification import run_cell as run_cell
    from opassay.properties.verification import verify as verify
    from opassay.properties.verification import verify_function as verify_function
    from opassay.properties.verification import verify_kernel as verify_kernel

__version__ = "0.1.0"

# The addresses are absolute and begin with the installed name, because the folder that this
# file stands in has another one.
_HOME = {
    **dict.fromkeys(("Draft", "Law", "Op", "Promises", "Refusal", "Sample"), "opassay.oracles.op.declaration"),
    **dict.fromkeys(("Devices", "Homes", "Ranks"), "opassay.oracles.op.placement"),
    **dict.fromkeys(("Documented", "Limit"), "opassay.oracles.op.documented"),
    "Unsupported": "opassay.oracles.verdicts.violation",
    **dict.fromkeys(("Cell", "Code", "Outcome", "Verdict"), "opassay.oracles.verdicts.verdict"),
    **dict.fromkeys(("PRESETS", "Terms"), "opassay.oracles.bound.terms"),
    **dict.fromkeys(("Bound", "assert_conforms", "bound"), "opassay.properties.candidates.conformance"),
    **dict.fromkeys(("Formula", "SpecError"), "opassay.properties.candidates.specification"),
    "judge": "opassay.properties.candidates.judging",
    "declare": "opassay.properties.declaring.declare",
    **dict.fromkeys(("Settings", "replay_case", "run_cell", "verify"), "opassay.properties.verification"),
    "custom_function": "opassay.properties.functions.user",
    "load_op": "opassay.properties.engine.plan",
    **dict.fromkeys(("KERNEL_PROPERTIES", "Offer", "custom_kernel"), "opassay.properties.functions.kernel"),
    **dict.fromkeys(("ok", "table"), "opassay.properties.summary"),
    **dict.fromkeys(("kernel_of_op", "verify_function", "verify_kernel"), "opassay.properties.verification"),
}
#: Names that are modules: what a declaration is made of.
_MODULES = {
    "drawing": "opassay.properties.declaring.drawing",
    "laws": "opassay.properties.declaring.laws",
    "pytest": "opassay.pytest",
    "refusals": "opassay.properties.declaring.refusals",
    "strategies": "opassay.properties.declaring.strategies",
}


def __getattr__(name: str) -> Any:
    # `import_module` finds a module that is loaded already, so nothing needs to be kept here for a second use.
    home = _MODULES.get(name) or _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'opassay' has no attribute {name!r}")
    try:
        found = importlib.import_module(home)
    except ModuleNotFoundError as err:
        if err.name is None or err.name.partition(".")[0] == "opassay":
            raise
        text = f'opassay.{name} needs {err.name}, which is not installed; pip install "opassay[verify]"'
        raise ModuleNotFoundError(text, name=err.name) from err
    return found if name in _MODULES else getattr(found, name)


def __dir__() -> list[str]:
    # Of the folders beside this one, `impl` alone is meant to be used; the others can be imported all the same.
    return sorted(["__version__", "impl", *_HOME, *_MODULES])
