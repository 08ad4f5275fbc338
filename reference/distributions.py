"""Which modules are of the library of ops, and the error of whoever imports one of these where it is not installed.

One tree makes two distributions: `opassay` judges what somebody hands over; `opassay-ops` has the library, its catalog,
and what judges declared ops and custom functions. Neither has a file of the other.
"""

from __future__ import annotations

import importlib.util
import sys

PACKAGE = "opassay"
#: Folder in the package -> its modules and packages that are of opassay-ops, with all that these have within.
OPS: dict[str, str] = {
    "": "impl pytest",
    "properties": "functions programs summary verification",
    "properties.catalog": "collectives hooks linalg losses losses_laws mismatch norms over_places pointwise"
    " response_norm softmax",
    "properties.declaring": "declare drawing laws refusals shapes signature subjects torch_documents",
    "properties.engine": "plan",
    "properties.places": "cluster crash_limit crash_search gathering interpreting kernels loading pool prepared"
    " prepared_program rank_program rank_team topic_queue",
    "properties.torch_ops": "names_of operator_calls torch_op",
    "reference": "collectives linalg response_norm",
    "reference.norms": "rms_norm",
    "reports": "pytest_cells",
    "reports.cli": "list options replay_cell run session",
}
#: The distribution of these, which is the name in an error of import, too: a module of that name there is none.
OPS_NAME = "opassay-ops"


def is_of_ops(name: str) -> bool:
    """Whether a module of the package, `reports.cli.run` say, is of opassay-ops."""
    parts = name.split(".")
    return any(part in OPS.get(".".join(parts[:i]), "").split() for i, part in enumerate(parts))


def has_ops() -> bool:
    """Whether the library of ops is installed."""
    try:
        return importlib.util.find_spec(f"{PACKAGE}.impl") is not None
    except ModuleNotFoundError:
        return False


class AbsentFinder:
    """Asked for a module last of all finders: for one of opassay-ops it says what installs it."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name.startswith(f"{PACKAGE}.") and is_of_ops(name.removeprefix(f"{PACKAGE}.")):
            text = f'{name} is in the library of ops, which is not installed; pip install "{PACKAGE}[ops]"'
            raise ModuleNotFoundError(text, name=OPS_NAME)


sys.meta_path.append(AbsentFinder)
