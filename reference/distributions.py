"""Which modules stand in a distribution of their own, and the error of whoever imports one that is not installed.

One tree makes three distributions. `opassay` judges what somebody hands over. `opassay-ops` has the library of ops, its
catalog, and what judges declared ops and custom functions; `opassay-machine` executes kernels without a GPU. No file is
in two.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import NamedTuple

PACKAGE = "opassay"


class PackagePart(NamedTuple):
    """A distribution besides `opassay`.

    Attributes:
        words: what it is. needs: the parts that its modules import.
        table: folder in the package -> its modules and packages that are of the part, with all that these have within.
    """

    words: str
    needs: tuple[str, ...]
    table: dict[str, str]


#: The extra that installs it -> the part.
PARTS = {
    "ops": PackagePart("the library of ops", ("machine",), {
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
    "machine": PackagePart("the machine that executes kernels without a GPU", (), {
        "oracles.machine": "fused interpreter memory types",
        "oracles.machine.ptx": "accesses arithmetic atomics bulk_copies chunk clusters contraction conversions"
        " cuda_headers cuda_source executable execution executor extern extremes flow grammar host_code integers"
        " listing low_bits mbarriers moves nvrtc operands parameters plain_text tensor_cores tensor_maps"
        " triton_launches warpgroups warps wmma wraps",
        "properties.rehearsal": "__main__ cute driver extensions graphs hook launches peer_copies samples start"
        " torch_cuda triton_driver",
    }),
}  # fmt: skip


def part_of(name: str) -> str:
    """The part that a module of the package, `reports.cli.run` say, is in; empty for `opassay` itself."""
    words = name.split(".")
    pairs = [(".".join(words[:i]), word) for i, word in enumerate(words)]
    parts = (k for k, part in PARTS.items() if any(word in part.table.get(home, "").split() for home, word in pairs))
    return next(parts, "")


def has_part(part: str) -> bool:
    """Whether a part is installed."""
    folder, words = next(iter(PARTS[part].table.items()))
    try:
        return importlib.util.find_spec(".".join(filter(None, [PACKAGE, folder, words.split()[0]]))) is not None
    except AbsentError:
        return False


def require_part(part: str) -> None:
    """Require that a part is installed.

    Raises:
        AbsentError: it is not; the text says what installs it.
    """
    if not has_part(part):
        raise AbsentError(f'{PARTS[part].words} is not installed; pip install "{PACKAGE}[{part}]"')


class AbsentError(ModuleNotFoundError):
    """A module of a part that is not installed."""


class AbsentFinder:
    """Asked for a module last of all finders: for one of a part it says what installs that."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        part = part_of(name.removeprefix(f"{PACKAGE}.")) if name.startswith(f"{PACKAGE}.") else ""
        if part:
            text = f'{name} is in {PARTS[part].words}, which is not installed; pip install "{PACKAGE}[{part}]"'
            # Python takes no notice of the error in `from opassay import impl` where it has the name of the module.
            raise AbsentError(text, name=f"{PACKAGE}-{part}")


sys.meta_path.append(AbsentFinder)
