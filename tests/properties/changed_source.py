"""A package with one line of its source changed, under another name: a mistake planted where it would be made."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

_numbers = itertools.count()


def changed(package: ModuleType, order: Sequence[str], module: str, old: str, new: str) -> ModuleType:
    """Modules of a package, as another package beside it, with `old` replaced by `new` in one of them.

    Args:
        order: names of the modules, each after those that it imports.

    Raises:
        ValueError: `old` is not there exactly once.
    """
    assert package.__file__ is not None
    folder, beside = Path(package.__file__).parent, package.__name__.rpartition(".")[0]
    name = f"{beside}.changed_{next(_numbers)}"
    copy = ModuleType(name)
    copy.__path__ = []
    sys.modules[name] = copy
    for part in order:
        source = folder / f"{part}.py"
        text = source.read_text(encoding="utf-8")
        if part == module:
            if text.count(old) != 1:
                raise ValueError(f"{module}.py: got {text.count(old)} places of {old!r}, need one")
            text = text.replace(old, new)
        spec = importlib.util.spec_from_loader(f"{name}.{part}", loader=None)
        assert spec is not None
        loaded = importlib.util.module_from_spec(spec)
        loaded.__package__ = name
        sys.modules[f"{name}.{part}"] = loaded
        exec(compile(text, str(source), "exec"), loaded.__dict__)
        setattr(copy, part, loaded)
    return copy
