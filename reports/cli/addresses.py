"""What a user names: what it may have been meant to be, and whether it is in the text of a file, without torch."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...properties.candidates.cases import CANDIDATES, SPECS, parts_of
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
    defined, others = _names_in(path)
    name = name.partition(".")[0]
    if not name or "::" in name or name in defined or "*" in defined or (defined | others) & {*_DYNAMIC}:
        return
    raise Stop(exit_codes.USAGE, f"{address}: has no {name}{nearest_of(name, defined)}")


def pair_in(candidate: str) -> tuple[str, str] | None:
    """The addresses of a candidate and of the spec in its own file; None where that has none, or both are one."""
    path, _, name = parts_of(candidate)
    if path is None or path.suffix != ".py" or not path.is_file():
        return None
    defined, _ = _names_in(path)
    spec = next((each for each in SPECS if each in defined), "")
    own = name or next((each for each in CANDIDATES if each in defined), "")
    return (f"{path}:{own}", f"{path}:{spec}") if spec and own not in ("", spec) else None


def line_of(address: str) -> tuple[str, int] | None:
    """The file of an address, and the line where the name in it, or the candidate, is defined; None for no file."""
    path, _, name = parts_of(address)
    if path is None or path.suffix != ".py":
        return None
    with contextlib.suppress(SyntaxError, ValueError, OSError):
        nodes = [
            n for n in ast.walk(ast.parse(path.read_bytes(), path)) if isinstance(n, ast.FunctionDef | ast.ClassDef)
        ]
        names = (name,) if name else CANDIDATES
        return str(path), next((node.lineno for each in names for node in nodes if node.name == each), 1)
    return None


def _names_in(path: Path) -> tuple[set[str], set[str]]:
    """The names that the text of a file defines, and those that it uses.

    Raises:
        Stop: it is no text of Python.
    """
    try:
        nodes = [*ast.walk(ast.parse(path.read_bytes(), path))]
    except (SyntaxError, ValueError) as err:
        line = (getattr(err, "text", None) or "").strip()
        raise Stop(exit_codes.USAGE, f"{path} does not compile: {type(err).__name__}: {err}: {line}") from err
    except OSError:
        return {"*"}, set()  # it is told when the file is read
    defined = {each.name for each in nodes if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    defined |= {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    aliases = [alias for each in nodes if isinstance(each, ast.Import | ast.ImportFrom) for alias in each.names]
    defined |= {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
    return defined, {each.id for each in nodes if isinstance(each, ast.Name)}


# Before version 8.2 click's class takes no type in brackets at run time.
if TYPE_CHECKING:
    _Choice = click.Choice[str]
else:
    _Choice = click.Choice


def completing(names: Iterable[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """What a shell offers for the beginning of an argument: the names that begin so, in upper or lower case."""
    return lambda context, parameter, begun: [name for name in names if name.lower().startswith(begun.lower())]


class HintedChoice(_Choice):
    """A choice of names that says of an unknown one which is near."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as err:
            hint = nearest_of(str(value), map(str, self.choices))
            self.fail(f"{err.message.rstrip('.')}{hint}.", param, ctx)
