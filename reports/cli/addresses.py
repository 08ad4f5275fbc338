"""What a user names, looked for in the text of a file: before torch is imported, which takes seconds."""

from __future__ import annotations

import ast
from pathlib import Path

from ...properties.candidates.cases import parts_of
from ...properties.names import nearest_of
from .. import exit_codes
from .host import Stop

#: By these a file may define names that its text does not show.
_DYNAMIC = ("globals", "exec", "setattr", "vars", "__getattr__")


def require_in_file(address: str) -> None:
    """Require of a file, or of a pair `file.py:name`, that both are there and Python; a module is not looked for.

    Raises:
        Stop: one of them is not, or the text is none of Python.
    """
    path, module, name = parts_of(address)
    if path is None and ":" in address:
        return
    path = path or Path(module)
    if path.is_file() and path.suffix == ".py":
        _require_name(address, path, name)
    if not path.exists():
        near = nearest_of(path.name, [each.name for each in path.parent.glob("*.py")])
        lack = "no such file" if path.suffix == ".py" else "no such file, and no pair module:name"
        raise Stop(exit_codes.USAGE, f"{path}: {lack}{near}")


def _require_name(address: str, path: Path, name: str) -> None:
    """Of the first name only: what a dotted one has within it is known when it is made; of none, the text alone."""
    try:
        nodes = [*ast.walk(ast.parse(path.read_bytes(), path))]
    except (SyntaxError, ValueError) as err:
        line = (getattr(err, "text", None) or "").strip()
        raise Stop(exit_codes.USAGE, f"{path} does not compile: {type(err).__name__}: {err}: {line}") from err
    except OSError:
        return  # it is told when the file is read
    names = {each.id for each in nodes if isinstance(each, ast.Name)}
    defined = {each.name for each in nodes if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    defined |= {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    aliases = [alias for each in nodes if isinstance(each, ast.Import | ast.ImportFrom) for alias in each.names]
    defined |= {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
    name = name.partition(".")[0]
    if not name or "::" in name or name in defined or "*" in defined or (names | defined) & {*_DYNAMIC}:
        return
    raise Stop(exit_codes.USAGE, f"{address}: has no {name}{nearest_of(name, defined)}")
