"""Prints a page: which of torch's differentiable operations are read, and why the others are not.

python benchmarks/torch_operations.py > torch_operations.md      # two minutes of one core
"""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterable

import torch

from opassay.properties.torch_ops.operator_calls import calls_of, operators, reading_of
from opassay.properties.torch_ops.torch_op import spec_of

_OWN = "the operation's own rule"


def main() -> None:
    torch.set_num_threads(1)
    own, decomposed, reasons = list[str](), list[str](), defaultdict[str, list[str]](list)
    calls = 0
    for name in operators():
        readable = [call for call in calls_of(name) if not reading_of(call).why_not]
        calls += len(readable)
        if readable:
            (own if all(spec_of(name, call) == _OWN for call in readable) else decomposed).append(name)
        else:
            whys = [reading_of(call).why_not for call in calls_of(name)]
            reasons[whys[0] if whys else "torch's tests have no sample of it that is dense, real and small"].append(
                name
            )
    print(_HEAD.format(operations=len(operators()), read=len(own) + len(decomposed), calls=calls, version=_version()))
    print(f"## Read by a rule of their own: {len(own)}\n\n{_filled(own)}\n")
    print(f"## Read as what torch decomposes them into: {len(decomposed)}\n\n{_filled(decomposed)}\n")
    print(f"## Not read: {sum(map(len, reasons.values()))}\n")
    print("Of these `AGREE` compares the ways to one result with each other.\n")
    for why, names in sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0])):
        print(textwrap.fill(f"- {why}: {_listed(names)}", 118, subsequent_indent="  ", break_on_hyphens=False))


def _version() -> str:
    return torch.__version__.partition("+")[0]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _filled(names: Iterable[str]) -> str:
    return textwrap.fill(_listed(names), 118, break_on_hyphens=False, break_long_words=False)


_HEAD = """# torch's operations as a catalog

`opassay run --op 'torch:NAME' --subject torch` judges an operation of torch by what its own function says; how, and
what came of it, is on [a page of its own](derivatives_of_torch.md). A name is one of torch's own tests (OpInfo, which
needs the package `expecttest`), and `torch:linalg.*` means all that begin so. Of {operations} differentiable operations
of torch {version} {read} are read, values and second derivatives, at {calls} calls.

`python benchmarks/torch_operations.py > docs/torch_operations.md` writes this page anew.
"""


if __name__ == "__main__":
    main()
