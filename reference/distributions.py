"""Which modules stand in a distribution of their own, and the error of whoever imports one that is not installed.

One tree makes three distributions. `opassay` judges what somebody hands over. `opassay-ops` has the library of ops, its
catalog, and what judges declared ops and custom functions; `opassay-machine` executes kernels without a GPU. No file is
of two.
"""

from __future__ import annotations

import importlib.util
import sys

PACKAGE = "opassay"
#: Extra that installs a distribution -> what that is in words, and by folder in the package its modules and packages,
#: with all that these have within.
PARTS: dict[str, tuple[str, dict[str, str]]] = {
    "ops": ("the library of ops", {
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
    }),
}  # fmt: skip


def part_of(name: str) -> str:
    """The part that a module of the package, `reports.cli.run` say, is in; empty for `opassay` itself."""
    words = name.split(".")
    pairs = [(".".join(words[:i]), word) for i, word in enumerate(words)]
    parts = (k for k, (_, table) in PARTS.items() if any(word in table.get(home, "").split() for home, word in pairs))
    return next(parts, "")


def has_part(part: str) -> bool:
    """Whether a part is installed."""
    folder, words = next(iter(PARTS[part][1].items()))
    try:
        return importlib.util.find_spec(".".join(filter(None, [PACKAGE, folder, words.split()[0]]))) is not None
    except AbsentError:
        return False


class AbsentError(ModuleNotFoundError):
    """A module of a part that is not installed."""


class AbsentFinder:
    """Asked for a module last of all finders: for one of a part it says what installs that."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        part = part_of(name.removeprefix(f"{PACKAGE}.")) if name.startswith(f"{PACKAGE}.") else ""
        if part:
            text = f'{name} is in {PARTS[part][0]}, which is not installed; pip install "{PACKAGE}[{part}]"'
            # Python takes no notice of the error in `from opassay import impl` where it has the name of the module.
            raise AbsentError(text, name=f"{PACKAGE}-{part}")


sys.meta_path.append(AbsentFinder)
