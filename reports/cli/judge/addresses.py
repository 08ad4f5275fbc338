"""What a user names, looked for in the text of a file: before torch is imported, which takes seconds."""

from __future__ import annotations

import ast
from pathlib import Path

from ... import exit_codes
from ..host import Stop
from ..project.hints import did_you_mean

#: By these a file may define names that its text does not show.
_DYNAMIC = ("globals", "exec", "setattr", "vars", "__getattr__")


def require_in_file(address: str) -> None:
    """Require of a file, or of a pair `file.py:name`, that both are there; a module is not looked for.

    Raises:
        Stop: one of them is not.
    """
    file, within, name = address.partition(".py:")
    path = Path(f"{file}.py" if within else address)
    if path.exists() or (path.suffix != ".py" and ":" in address):
        if within and path.is_file():
            _require_name(address, path, name)
        return
    folder = path.parent
    near = did_you_mean(path.name, [each.name for each in folder.glob("*.py")] if folder.is_dir() else [])
    lack = "no such file" if path.suffix == ".py" else "no such file, and no pair module:name"
    raise Stop(exit_codes.USAGE, f"{path}: {lack}{near}")


def _require_name(address: str, path: Path, name: str) -> None:
    try:
        nodes = [*ast.walk(ast.parse(path.read_bytes()))]
    except (OSError, SyntaxError, ValueError):
        return  # it is told with its line when the file is read
    names = {each.id for each in nodes if isinstance(each, ast.Name)}
    defined = {each.name for each in nodes if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    defined |= {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    aliases = [alias for each in nodes if isinstance(each, ast.Import | ast.ImportFrom) for alias in each.names]
    defined |= {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
    if "::" in name or name in defined or "*" in defined or (names | defined) & {*_DYNAMIC}:
        return
    raise Stop(exit_codes.USAGE, f"{address}: has no {name}{did_you_mean(name, defined)}")
