"""Putting a mutant into a process that has imported everything, and taking it out again.

A function of Python keeps its program in `__code__`, which can be replaced while the function stays where it is: in
modules, in closures, in torch's tables of operators. So nothing is imported again, whoever holds the function. The
changed text is compiled as a whole, and each function whose code differs gets its new one; a function around the change
differs, too, because it holds the code of those that it makes.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType

from opassay import impl

from .mutants import Mutant, find_changes
from .spots import Scope

FOLDER = Path(impl.__file__).parent
#: (line, qualified name) of a function of a file.
Place = tuple[int, str]


class SameProgramError(ValueError):
    """The changed text means what it meant before: it is compiled to the same code."""


class Source:
    """A file of the production ops, read once for all of its mutants.

    Attributes:
        path: as code objects have it.
    """

    def __init__(self, file: str) -> None:
        self.path = path_of(file)
        text = Path(self.path).read_text(encoding="utf-8")
        self._tree = ast.parse(text)
        self._before = _codes(compile(self._tree, self.path, "exec"))
        self._changes = {mutant.key: (spot, node) for mutant, spot, node in find_changes(file, self._tree)}

    def codes(self, mutant: Mutant) -> dict[Place, CodeType]:
        """The code of those functions that a mutant changes; the tree stays changed, so this can be asked once.

        Raises:
            LookupError: the file has no such place.
        """
        if mutant.key not in self._changes:
            raise LookupError(f"{mutant.file}: {mutant.function} has no mutant={mutant.key} any more")
        spot, node = self._changes[mutant.key]
        spot.put(node)
        codes = _codes(compile(self._tree, self.path, "exec"))
        variables = {place: code.co_freevars for place, code in self._before.items()}
        if any(variables.get(place, code.co_freevars) != code.co_freevars for place, code in codes.items()):
            # A function that reads a variable of the one around it has a cell for it. One that does not read it any
            # more has none, and its code would not fit the functions that are there; so it is said to read it.
            _say_that_they_read(spot.scopes, variables)
            codes = _codes(compile(self._tree, self.path, "exec"))
        return {place: code for place, code in codes.items() if self._before.get(place, code) != code}


@functools.cache
def source(file: str) -> Source:
    """A file, read when it is first asked for; a copy of this process finds it read."""
    return Source(file)


def path_of(file: str) -> str:
    """The path of a file of the production ops, as code objects have it."""
    module = sys.modules.get(f"{impl.__name__}.{file.removesuffix('.py').replace('/', '.')}")
    return str(FOLDER / file if module is None or module.__file__ is None else module.__file__)


@contextlib.contextmanager
def plant_mutant(mutant: Mutant) -> Iterator[None]:
    """Within it the functions of the mutant's file are those of its changed text.

    Raises:
        LookupError: the file has no such place, or no function there is now runs it.
        SameProgramError: the change is none.
    """
    whole = source(mutant.file)
    try:
        codes = whole.codes(mutant)
    finally:
        source.cache_clear()  # its tree has the change in it
    if not codes:
        raise SameProgramError(f"{mutant.file}:{mutant.line}: {mutant.new} is compiled to the same code")
    pairs = [(function, codes.get(_place(function.__code__))) for function in functions_of(whole.path)]
    fitting = [(function, code) for function, code in pairs if code is not None]
    if not fitting or any(len(code.co_freevars) != len(each.__code__.co_freevars) for each, code in fitting):
        raise LookupError(f"{mutant.file}:{mutant.line}: no function of this process has the code of {mutant.function}")
    replaced = [(function, function.__code__) for function, _ in fitting]
    for function, code in fitting:
        function.__code__ = code
    try:
        forget()
        yield
    finally:
        for function, before in replaced:
            function.__code__ = before
        forget()


def _place(code: CodeType) -> Place:
    return code.co_firstlineno, code.co_qualname


def forget() -> None:
    """Empty the tables in which functions of the production ops keep results that a mutant would give otherwise."""
    for module in [module for name, module in sys.modules.items() if name.startswith(impl.__name__)]:
        for value in list(vars(module).values()):
            if hasattr(value, "cache_clear") and hasattr(value, "__wrapped__"):
                value.cache_clear()


def _say_that_they_read(scopes: Sequence[Scope], variables: dict[Place, tuple[str, ...]]) -> None:
    for scope in scopes[1:]:
        # Its own variables alone: one that only the function around it reads, `__class__` say, is one too many.
        names = {name for place, read in variables.items() if place[0] == _first_line(scope) for name in read}
        names_read = ast.Tuple([ast.Name(name, ast.Load()) for name in sorted(names)], ast.Load())
        if isinstance(scope, ast.Lambda):
            scope.body = ast.IfExp(ast.Constant(True), scope.body, names_read)
        else:
            scope.body.append(ast.If(ast.Constant(False), [ast.Expr(names_read)], []))
        ast.fix_missing_locations(ast.copy_location(names_read, scope))
        ast.fix_missing_locations(scope)


def _first_line(scope: Scope) -> int:
    decorators = [] if isinstance(scope, ast.Lambda) else scope.decorator_list
    return min([scope.lineno, *(decorator.lineno for decorator in decorators)])


def _codes(code: CodeType) -> dict[Place, CodeType]:
    """The code of every function in a compiled file."""
    codes: dict[Place, CodeType] = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            codes[_place(constant)] = constant
            codes |= _codes(constant)
    return codes


def remember() -> None:
    """Find every function of the production ops now, so that copies of this process need not look for them."""
    _FUNCTIONS.clear()
    for each in _functions():
        if each.__code__.co_filename.startswith(str(FOLDER)):
            _FUNCTIONS[each.__code__.co_filename].append(each)


#: By path, functions that were found before.
_FUNCTIONS = defaultdict[str, list[FunctionType]](list)


def functions_of(path: str) -> list[FunctionType]:
    """Every function of a file, whoever holds it: those that are remembered, if any, else those that there are now."""
    if path in _FUNCTIONS:
        return _FUNCTIONS[path]
    return [each for each in _functions() if each.__code__.co_filename == path]


def _functions() -> list[FunctionType]:
    """Every function of this process, with those that a worker has set aside, which the collector does not list."""
    is_worker = gc.get_freeze_count() > 0
    gc.unfreeze()
    try:
        return [each for each in gc.get_objects() if type(each) is FunctionType]
    finally:
        if is_worker:
            gc.freeze()
