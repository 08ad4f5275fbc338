"""opassay: production PyTorch ops that are right under every transform, and the proof.

The ops are in `opassay.impl` and need torch alone. The names here belong to the framework that judges them; they load
on first use, so that `import opassay` is instant and pulls in neither mpmath nor pytest.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

from opassay.reference.distributions import AbsentError

# Type checkers and editors read these imports, and `__getattr__` reads them at the first use of a name. `as` marks each
# name as public, which a plain import in a typed package is not. The module names are absolute and begin with the
# installed name, because this file's folder has another name.
if TYPE_CHECKING:
    from opassay import pytest as pytest
    from opassay.oracles.bound.terms import PRESETS as PRESETS
    from opassay.oracles.bound.terms import Terms as Terms
    from opassay.oracles.machine.ptx.cuda_source import cuda_kernel as cuda_kernel
    from opassay.oracles.machine.ptx.cuda_source import ptx_kernel as ptx_kernel
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
    from opassay.properties.candidates.assertion import assert_conforms as assert_conforms
    from opassay.properties.candidates.bound_parts import explain_bound as explain_bound
    from opassay.properties.candidates.conformance import Bound as Bound
    from opassay.properties.candidates.conformance import bound as bound
    from opassay.properties.candidates.judging import judge as judge
    from opassay.properties.candidates.judging import parity as parity
    from opassay.properties.candidates.numpy_specs import Formula as Formula
    from opassay.properties.candidates.specification import SpecError as SpecError
    from opassay.properties.candidates.specification import specification as specification
    from opassay.properties.candidates.tuning import AccuracyCheck as AccuracyCheck
    from opassay.properties.candidates.tuning import accuracy_check as accuracy_check
    from opassay.properties.catalog.loading import load_op as load_op
    from opassay.properties.declaring import drawing as drawing
    from opassay.properties.declaring import laws as laws
    from opassay.properties.declaring import refusals as refusals
    from opassay.properties.declaring import strategies as strategies
    from opassay.properties.declaring.declare import declare as declare
    from opassay.properties.declaring.user_samples import Integers as Integers
    from opassay.properties.functions.kernel import custom_kernel as custom_kernel
    from opassay.properties.functions.kernel_request import KERNEL_PROPERTIES as KERNEL_PROPERTIES
    from opassay.properties.functions.offer import Offer as Offer
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
    from opassay.properties.watch.compiled import watched as watched
    from opassay.properties.watch.keeping import Keep as Keep
    from opassay.properties.watch.regions import spec as spec
    from opassay.properties.watch.two_programs import compare_programs as compare_programs
    from opassay.properties.watch.watcher import Watcher as Watcher
    from opassay.properties.watch.watcher import watch as watch

__version__ = "0.1.0"


@functools.cache
def _homes() -> dict[str, str]:
    """public name -> the module or package that defines it, read from the text of the imports above."""
    import ast  # takes longer to import than everything else here

    with open(__file__, encoding="utf-8") as file:
        (block,) = (node for node in ast.parse(file.read()).body if isinstance(node, ast.If))
    return {a.name: str(line.module) for line in block.body if isinstance(line, ast.ImportFrom) for a in line.names}


def __getattr__(name: str) -> Any:
    # `import_module` returns a module that is already loaded, so nothing needs to be stored here for a second use.
    home = _homes().get(name)
    if home is None:
        raise AttributeError(f"module 'opassay' has no attribute {name!r}")
    try:
        module = importlib.import_module(home)
        # A public name of a package is that of one of its modules.
        return importlib.import_module(f"{home}.{name}") if hasattr(module, "__path__") else getattr(module, name)
    except ModuleNotFoundError as err:
        if err.name is None or err.name.partition(".")[0] == "opassay" or isinstance(err, AbsentError):
            raise
        text = f'opassay.{name} needs {err.name}, which is not installed; pip install "opassay[verify]"'
        raise ModuleNotFoundError(text, name=err.name) from err


def __dir__() -> list[str]:
    # Only the folder `impl` is meant for users; the others can be imported, too.
    return sorted(["__version__", "impl", *_homes()])
