"""`opassay judge --domain`: which calls a spec takes, in lines; no candidate is judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


def describe_domain(spec: str, seed: int, parameters: dict[str, Any]) -> list[str]:
    """The calls that the spec of a file takes, a line each.

    Args:
        spec: the file, or a pair. seed: of the given inputs. parameters: for what gives the inputs, by name.

    Raises:
        GivenError: the file has no spec, nothing that gives inputs, or a domain that clashes with these.
        SpecError: the spec refuses the given call.
    """
    from ....properties.candidates.arguments import CallArguments
    from ....properties.candidates.domain.deriving import derive_domain
    from ....properties.candidates.specification import specification
    from ....properties.candidates.suites.opening import open_pair

    with TemporaryDirectory() as folder:
        problem = open_pair(spec, spec, Path(folder), seed, parameters).problem
        read = replace(specification(problem.spec), domain=problem.domain)
        arguments = CallArguments.of(problem.draw(seed)).with_names(problem.spec)
        read.run(arguments, read.state)
        domain = derive_domain(read, arguments, problem.draw, lambda number: seed + number)
    return [
        f"calls that {read.name} takes, beside {arguments.text}",
        *domain.describe(arguments),
        *domain.declare(arguments),
    ]
