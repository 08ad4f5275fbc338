"""The budget: how many lines each capability of what is installed may have.

A number may rise only in a change that lowers another by as much: `TOTAL` is the sum, and no change raises it.
`python -m tests.budget` prints the table with what there is.
"""

from __future__ import annotations

from pathlib import Path

from tests import house
from workshop.distributions import distribution_of

#: Lines of all capabilities together.
TOTAL = 118_660
#: Capability -> folders and files that it has, and its lines. A file belongs to the longest path that it begins with.
CAPABILITIES: dict[str, tuple[str, int]] = {
    "Python and pytest doors": ("api", 237),
    "formulas": ("reference reference/norms", 3_292),
    "arrays of readings": ("reference/array", 1_743),
    "derivatives of formulas": ("reference/derivative", 1_040),
    "exact values": ("reference/exact", 703),
    "accept sets and contracts": ("oracles/bound", 1_478),
    "laws of linear algebra": ("oracles/bound/laws", 2_690),
    "rounding errors": ("oracles/bound/rounding", 5_917),
    "specs as they are read": ("oracles/specs", 3_995),
    "rules of torch's functions": ("oracles/specs/rules", 4_265),
    "judge and verdicts": ("oracles oracles/judge oracles/verdicts oracles/op", 4_285),
    "kernels without a GPU": ("oracles/machine properties/rehearsal", 10_328),
    "state of the process": ("oracles/process", 1_403),
    "programs of failures": ("oracles/programs properties/programs", 973),
    "properties of ops": ("properties properties/checks", 6_217),
    "samples and runs": ("properties/declaring properties/engine properties/picking properties/torch_ops", 5_473),
    "processes and ranks": ("properties/places", 2_912),
    "ops of one's own": ("properties/functions", 802),
    "catalog": ("properties/catalog", 3_849),
    "candidates: questions": ("properties/candidates properties/candidates/asking", 14_095),
    "candidates: calls of a spec": ("properties/candidates/domain", 2_312),
    "candidates: several ranks": ("properties/candidates/ranks", 425),
    "candidates: processes": ("properties/candidates/host", 3_112),
    "candidates: suites of others": ("properties/candidates/suites", 783),
    "watched programs": ("properties/watch properties/watch/stand_ins", 7_359),
    "pages of watched programs": ("reports/watch", 823),
    "production ops": ("impl", 6_883),
    "norms": ("impl/norms impl/response_norm", 6_614),
    "ranks and devices": ("impl/comm", 2_767),
    "command line": ("reports/cli", 5_690),
    "reports": ("reports", 6_195),
}  # fmt: skip
#: Distribution -> lines that it may have at most.
DISTRIBUTIONS = {"opassay": 84_700, "opassay-ops": 26_600, "opassay-machine": 8_200}


def count_lines(root: Path) -> dict[str, int]:
    """The lines of each capability.

    Raises:
        KeyError: a file of no capability.
    """
    owners = {path: name for name, (paths, _) in CAPABILITIES.items() for path in paths.split()}
    counts = dict.fromkeys(CAPABILITIES, 0)
    for module in house.modules(root):
        path = module.path.relative_to(root)
        owner = next(owners[str(each)] for each in path.parents if str(each) in owners)
        counts[owner] += len(module.text.splitlines())
    return counts


def count_distributions(root: Path) -> dict[str, int]:
    """The lines of each distribution."""
    counts = dict.fromkeys(DISTRIBUTIONS, 0)
    for module in house.modules(root):
        counts[distribution_of(module.path.relative_to(root))] += len(module.text.splitlines())
    return counts


def main() -> None:
    """Print each capability with its lines, and its budget."""
    counts = count_lines(Path.cwd())
    for name, (_, lines) in CAPABILITIES.items():
        print(f"{name:32}{counts[name]:8}{lines:8}")
    for name, lines in count_distributions(Path.cwd()).items():
        print(f"pip install {name:20}{lines:8}{DISTRIBUTIONS[name]:8}")
    print(f"{'in all':32}{sum(counts.values()):8}{TOTAL:8}")


if __name__ == "__main__":
    main()
