"""The source files of an op, and their digests: those of its implementation, its formula and its declaration.

A digest is of a whole file, because a function depends on the rest of its file. The implementation consists of every
file of `impl` in which the op's function is defined, or which such a file imports, directly or not; so a change to a
shared file changes all ops. The formula consists of every file of `reference` that it imports, without the readings,
which belong to the judge. Of an op of another package, only the files in which its functions are defined count.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

_PACKAGE = __name__.partition(".")[0]
_SHIPS, _MEANS = f"{_PACKAGE}.impl", f"{_PACKAGE}.reference"
#: Packages whose versions a certificate names, so their source files belong to no op.
_OTHERS = frozenset({"torch", "numpy", "mpmath", "gmpy2", "hypothesis", "triton"})
#: Modules whose imports are not followed: they offer every op by name, or are readings of a formula.
_ENDS = (_SHIPS, _MEANS, *(f"{_MEANS}.{room}" for room in ("array", "exact", "derivative")))


def files_of_subject(function: Callable[..., Any], ships: bool) -> dict[str, str]:
    """Digests of the files of an implementation, by name; none for an op that is built into torch.

    `ships` says whether it is the production op of the declaration, and not another subject.
    """
    modules = sorted({each.__module__ for each in reachable(function)})
    if ships and not any(name.startswith(f"{_SHIPS}.") for name in modules):
        # The declarations of some ops make the judged function of functions that they import.
        imported = [other for name in modules if name.startswith(f"{_PACKAGE}.") for other in _imports(name)]
        modules += [name for name in imported if name.startswith(f"{_SHIPS}.")]
    return _digests(_closure(modules, _SHIPS))


def files_of_formula(formula: Callable[..., Any]) -> dict[str, str]:
    """Digests of the files of a formula, by name."""
    return _digests(_closure(sorted({each.__module__ for each in reachable(formula)}), _MEANS))


def files_of_module(name: str) -> dict[str, str]:
    """The digest of the file of one module, by name."""
    return _digests([name])


def elementary_functions(formula: Callable[..., Any], candidates: Iterable[str]) -> list[str]:
    """The functions of NumPy, of `candidates`, that the text of a formula, or of a function that it calls, names.

    "power" is also named by `**`, unless the exponent is a whole number: then it is a product.
    """
    names: set[str] = set()
    for function in reachable(formula):
        for node in ast.walk(_tree(function)):
            match node:
                case ast.Attribute(attr=name) | ast.Name(id=name):
                    names.add(name)
                case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=int())):
                    continue
                case ast.BinOp(op=ast.Pow()):
                    names.add("power")
    return sorted(names & set(candidates))


def reachable(function: Callable[..., Any]) -> list[Any]:
    """The function, and the functions that it mentions, directly or not, in modules of the op (`_is_own`)."""
    functions: dict[int, Any] = {}
    waiting = [function]
    while waiting:
        one = inspect.unwrap(waiting.pop())
        if id(one) in functions:
            continue
        if isinstance(one, functools.partial):
            waiting.append(one.func)
        elif isinstance(one, types.FunctionType) and _is_own(one.__module__):
            functions[id(one)] = one
            waiting += _mentions(one)
        elif isinstance(one, type) and _is_own(one.__module__):
            functions[id(one)] = one
    return list(functions.values())


def _is_own(module: str) -> bool:
    top, _, rest = module.partition(".")
    if top == _PACKAGE:
        # Of this package only implementations, formulas, and the catalog, whose declarations wrap both.
        return rest.split(".")[0] in ("impl", "reference", "properties") and not module.startswith(_ENDS[2:])
    return top not in sys.stdlib_module_names and top not in _OTHERS and _path(module) is not None


def _mentions(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            if callable(cell.cell_contents):
                yield cell.cell_contents
        except ValueError:  # a name that has no value yet
            continue
    for node in ast.walk(_tree(function)):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=part):
                owner = function.__globals__.get(name)
                value = getattr(owner, part, None) if isinstance(owner, types.ModuleType) else None
            case ast.Name(id=name):
                value = function.__globals__.get(name)
            case _:
                continue
        if isinstance(value, types.FunctionType | functools.partial | type):
            yield value


def _tree(function: Any) -> ast.AST:
    try:
        lines, _ = inspect.getsourcelines(function)
        # The lines of a nested function are indented, and those of a lambda may begin in the middle of a statement.
        return ast.parse(inspect.cleandoc("\n" + "".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return ast.Module([], [])


def _closure(modules: Iterable[str], prefix: str) -> list[str]:
    """The modules, and those below the package `prefix` that they import, directly or not."""
    names: dict[str, None] = {}
    waiting = [name for name in modules if name.startswith(f"{prefix}.") or not name.startswith(f"{_PACKAGE}.")]
    while waiting:
        name = waiting.pop()
        if name in names or name in _ENDS:
            continue
        names[name] = None
        if name.startswith(f"{prefix}."):
            waiting += [other for other in _imports(name) if other.startswith(f"{prefix}.")]
    return [name for name in names if not name.startswith(_ENDS[2:])]


@functools.cache
def _imports(name: str) -> tuple[str, ...]:
    """Modules that a module imports, anywhere in its text; imported names that are no modules are left out."""
    path = _path(name)
    if path is None:
        return ()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(filter(None, (base, node.module or "")))
            below = [f"{module}.{alias.name}" for alias in node.names]
            names += [module, *(each for each in below if each.startswith(f"{_PACKAGE}.") and _path(each))]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return tuple(names)


def _path(name: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None


def _digests(modules: Iterable[str]) -> dict[str, str]:
    digests = {}
    for name in modules:
        path = _path(name)
        if path is not None:
            ending = "/__init__.py" if path.name == "__init__.py" else ".py"
            digests[name.replace(".", "/") + ending] = hashlib.sha256(path.read_bytes()).hexdigest()
    return dict(sorted(digests.items()))
