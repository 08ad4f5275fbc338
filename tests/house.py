"""Figures of how the code is built: `python -m tests.house [ROOT]` prints them, for this repository by default.

Nothing is imported and nothing is run: `ast` reads the syntax tree, `tokenize` the comments, so that two states of the
repository can be counted by one script. What each figure counts stands in the docstring of the function that counts
it. `Any` and "product" mean the six folders that are installed; tests and benchmarks are not counted.
"""

from __future__ import annotations

import ast
import functools
import io
import itertools
import sys
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests import records
from tests.import_graph import cycle, cycle_of_rooms, edges
from tests.syntax import nodes, parse_text

FOLDERS = ("api", "reference", "impl", "oracles", "properties", "reports")
PACKAGE = "opassay"

DUPLICATE_LINES = 6
MANY_PARAMETERS = 5
MANY_MODULES = 3
MOST_PARAMETERS = 8
#: What a user calls with everything that is asked: its parameters name each thing once.
MOST_PARAMETERS_OF = {"declare": 12, "judge": 11}

#: Where names mirror each other by design; see `is_in_family`.
FAMILIES = (
    "reference.", "impl.", "properties.catalog.", "oracles.bound.rounding.", "oracles.specs.rules.",
    "properties.watch.stand_ins.",
)  # fmt: skip

#: One letter is a name where the literature writes that letter: a, b, c operands and the centre of a ball, f a function
#: under differentiation, g a cotangent, t a tangent or any tensor, p probabilities, r a radius or 1/√(σ² + ε), k and s
#: of local response normalisation, u, v, w, x, y, z vectors, C and N in signatures that torch prescribes. It is not a
#: name for a number of something, an index, or an object of this program.
LETTERS = frozenset("abcfgkprstuvwxyzCN_")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name below the root (a package has that of its folder) and its text."""

    name: str
    path: Path
    text: str

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @functools.cached_property
    def tree(self) -> ast.Module:
        return parse_text(self.text, str(self.path))

    @functools.cached_property
    def tokens(self) -> list[tokenize.TokenInfo]:
        return list(tokenize.generate_tokens(io.StringIO(self.text).readline))

    @functools.cached_property
    def functions(self) -> list[Function]:
        return [node for node in nodes(self.tree) if isinstance(node, Function)]

    @functools.cached_property
    def docstring_lines(self) -> set[int]:
        """Lines of the docstrings of the module, its classes and its functions."""
        owners = [node for node in nodes(self.tree) if isinstance(node, ast.Module | ast.ClassDef | Function)]
        results: set[int] = set()
        for owner in owners:
            if ast.get_docstring(owner, clean=False) is not None:
                results |= set(range(owner.body[0].lineno, (owner.body[0].end_lineno or 0) + 1))
        return results

    @functools.cached_property
    def code_lines(self) -> set[int]:
        """Lines that hold a token which is neither a comment nor part of a docstring."""
        layout = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
        tokens = (token for token in self.tokens if token.type not in {tokenize.COMMENT, *layout})
        return {line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - self.docstring_lines

    @functools.cached_property
    def comments(self) -> list[tokenize.TokenInfo]:
        return [token for token in self.tokens if token.type == tokenize.COMMENT]


def modules(root: Path, *folders: str) -> list[Module]:
    """Every module below the given folders of a repository, by default below all that are installed."""
    paths = (path for folder in folders or FOLDERS for path in sorted((root / folder).rglob("*.py")))
    return [_read(_dotted(path.relative_to(root)), path, path.read_text()) for path in paths]


@functools.cache
def _read(name: str, path: Path, text: str) -> Module:
    """One module, whose tree and tokens are read once, however many figures are counted in it."""
    return Module(name, path, text)


def _dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


# ------------------------------------------------------------------------------------------------ what is counted


def positional_accesses(module: Module) -> Iterator[str]:
    """`name[3]` where name is a parameter of a function around it: values that a rule was given, told apart by number.

    An index is a literal integer, with or without a sign. `shape[0]` and `strides[0]` are not counted, for the dims of
    a tensor have numbers and no names, nor is `x.shape[0]`, which reads an attribute.
    """
    yield from _indexed(module.tree, frozenset())


def _indexed(node: ast.AST, names: frozenset[str]) -> Iterator[str]:
    if isinstance(node, Function | ast.Lambda):
        names |= {argument.arg for argument in _parameters(node)}
        names |= {argument.arg for argument in (node.args.vararg, node.args.kwarg) if argument}
        names -= {"shape", "strides"}
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in names:
        index = node.slice.operand if isinstance(node.slice, ast.UnaryOp) else node.slice
        if isinstance(index, ast.Constant) and type(index.value) is int:
            yield f"{node.lineno}: {ast.unparse(node)}"
    for child in ast.iter_child_nodes(node):
        yield from _indexed(child, names)


def _parameters(node: Function | ast.Lambda) -> list[ast.arg]:
    """The parameters that have a name at the call: neither *args nor **kwargs."""
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def any_types(module: Module) -> Iterator[str]:
    """The word `Any` wherever it stands in code, imports included."""
    names = (token for token in module.tokens if token.type == tokenize.NAME)
    yield from (f"{token.start[0]}: Any" for token in names if token.string == "Any")


def ignored_types(module: Module) -> Iterator[str]:
    """Comments that silence mypy."""
    yield from (f"{token.start[0]}: {token.string}" for token in module.comments if "type: ignore" in token.string)


def undescribed_parameters(module: Module) -> Iterator[str]:
    """Public functions and methods of five parameters or more whose docstring has no section `Args:`.

    Public is what can be reached by names without a leading underscore; functions inside functions are not, and one
    without any docstring is not counted here. `self`, `cls`, `*args` and `**kwargs` are no parameters.
    """
    yield from _undescribed(module.tree.body)


def _undescribed(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _undescribed(node.body)
        elif isinstance(node, Function) and not node.name.startswith("_"):
            count = len([argument for argument in _parameters(node) if argument.arg not in {"self", "cls"}])
            docstring = ast.get_docstring(node)
            if count >= MANY_PARAMETERS and docstring and "Args:" not in docstring:
                yield f"{node.lineno}: {node.name} has {count} parameters"


def one_letter_parameters(module: Module) -> Iterator[str]:
    """Parameters of functions and lambdas whose name is one letter, other than `LETTERS`."""
    for node in nodes(module.tree):
        if isinstance(node, Function | ast.Lambda):
            result = (argument.arg for argument in _parameters(node) if len(argument.arg) == 1)
            yield from (f"{node.lineno}: {letter}" for letter in result if letter not in LETTERS)


def comment_lines(module: Module) -> Iterator[str]:
    """Comments on lines of their own; those behind code are not counted, nor are the rules that head a section."""
    for token in module.comments:
        if token.line.lstrip().startswith("#") and not token.string.startswith("# ---"):
            yield f"{token.start[0]}: {token.string}"


def section_headings(module: Module) -> Iterator[str]:
    """Comments that are a rule across the page, with or without a title."""
    yield from (f"{token.start[0]}: {token.string}" for token in module.comments if token.string.startswith("# ---"))


def code_lines(module: Module) -> Iterator[str]:
    """Lines of code: neither blank, nor only a comment, nor of a docstring."""
    yield from (f"{line}:" for line in sorted(module.code_lines))


def function_lengths(module: Module) -> Iterator[tuple[int, str]]:
    """Lines of the body of every function, its docstring left out."""
    for node in module.functions:
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
        yield lines, f"{module.name}.{node.name}"


# ------------------------------------------------------------------------------------- what spans several modules


def is_in_family(module: Module) -> bool:
    """Whether a module is one of a family's rooms, where names mirror each other by design.

    An op has a formula, an implementation and a declaration of one name, and a kind of primitive (products, scans) has
    a file in every reading. A reader who knows one room of a family knows the others by these names.
    """
    return module.name.startswith(FAMILIES)


def homonyms(modules: list[Module]) -> list[str]:
    """Names of functions and classes that three modules or more define at their top, those of families left out."""
    places: dict[str, set[str]] = defaultdict(set)
    for module in itertools.filterfalse(is_in_family, modules):
        for node in module.tree.body:
            if isinstance(node, Function | ast.ClassDef):
                places[node.name].add(module.name)
    return sorted(f"{name}: {', '.join(sorted(at))}" for name, at in places.items() if len(at) >= MANY_MODULES)


def class_homonyms(modules: list[Module]) -> list[str]:
    """Names of classes that two modules or more define at their top."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module.name)
    return sorted(f"{name}: {', '.join(at)}" for name, at in places.items() if len(at) > 1)


def file_homonyms(modules: list[Module]) -> list[str]:
    """Names of files that stand in three rooms or more; all families together are one room."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        if not module.is_package:
            places[module.path.name].append("families" if is_in_family(module) else module.name)
    return sorted(f"{name}: {', '.join(at)}" for name, at in places.items() if len(set(at)) >= MANY_MODULES)


def large_records(module: Module) -> Iterator[str]:
    """Classes of too many fields; see `records`."""
    return records.large_records(module.tree)


def long_signatures(module: Module) -> Iterator[str]:
    """Functions of more than `MOST_PARAMETERS` parameters, or than those of `MOST_PARAMETERS_OF`.

    The callback of a click command is left out: click names its parameters after the options of the command.
    """
    for node in module.functions:
        count = len([argument for argument in _parameters(node) if argument.arg not in {"self", "cls"}])
        if count > MOST_PARAMETERS_OF.get(node.name, MOST_PARAMETERS) and not is_click_callback(node):
            yield f"{node.lineno}: {node.name}, {count} parameters"


def is_click_callback(function: Function) -> bool:
    """Whether a decorator makes a command of a function: `@click.command(...)`, or `@name.command(...)` of a group."""
    functions = (each.func if isinstance(each, ast.Call) else each for each in function.decorator_list)
    return any(isinstance(each, ast.Attribute) and each.attr in {"command", "group"} for each in functions)


def duplicates(modules: list[Module], *, within: bool) -> list[str]:
    """Pairs of places whose next six lines of code are equal, each run of equal lines counted once.

    Lines are compared without indentation and comments; imports and docstrings are left out, for who needs the same
    thing imports the same thing. The places are in two modules, or, with `within`, in one.
    """
    texts = {module.name: _lines_of_code(module) for module in modules}
    places: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for name, lines in texts.items():
        for start in range(len(lines) - DUPLICATE_LINES + 1):
            window = tuple(text for _, text in lines[start : start + DUPLICATE_LINES])
            places[window].append((name, start))
    equal = {pair for at in places.values() for pair in itertools.combinations(at, 2)}
    equal = {(a, b) for a, b in equal if (a[0] == b[0]) == within}
    begun = [(a, b) for a, b in equal if ((a[0], a[1] - 1), (b[0], b[1] - 1)) not in equal]
    return sorted(f"{a[0]}:{texts[a[0]][a[1]][0]} = {b[0]}:{texts[b[0]][b[1]][0]}" for a, b in begun)


def _lines_of_code(module: Module) -> list[tuple[int, str]]:
    """(number, text) of every line of code that is no import, without indentation and trailing comment."""
    imported = {
        line
        for node in nodes(module.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    ends = {token.start[0]: token.start[1] for token in module.comments}
    numbered = enumerate(module.text.splitlines(), start=1)
    wanted = module.code_lines - imported
    return [(number, line[: ends.get(number)].strip()) for number, line in numbered if number in wanted]


def largest_folder(modules: list[Module]) -> tuple[int, str]:
    """How many modules stand side by side in the fullest folder, its `__init__.py` not counted, and which it is."""
    counts: dict[str, int] = defaultdict(int)
    for module in modules:
        counts[str(module.path.parent)] += not module.is_package
    folder, count = max(counts.items(), key=lambda item: item[1])
    return count, folder


# ---------------------------------------------------------------------------------------------------- the table


def _each(counted: Callable[[Module], Iterator[str]], modules: list[Module]) -> list[str]:
    return [f"{module.name}:{place}" for module in modules for place in counted(module)]


def is_kernel_text(module: Module) -> bool:
    """Whether a module holds texts of Triton kernels, which are Python by syntax alone.

    Every operand of a kernel is a parameter, named by the literature's letter, and kernels cannot share a signature: so
    parameters and duplicates of these texts say nothing. Their lines, names and comments are counted as all others.
    """
    return "kernels_triton" in module.name.split(".") or module.name == "impl.gpu.arithmetic"


def counts(root: Path) -> dict[str, Callable[[], list[str]]]:
    """By figure, what lists all places that count towards it: module:line and what is there."""
    product, impl = modules(root), modules(root, "impl")
    plain, plain_impl = ([m for m in result if not is_kernel_text(m)] for result in (product, impl))
    apart = [m for m in product if not is_in_family(m)]
    graph = functools.cache(lambda: edges(root))
    return {
        "positional accesses, impl": lambda: _each(positional_accesses, impl),
        "Any, impl": lambda: _each(any_types, impl),
        "type: ignore, product": lambda: _each(ignored_types, product),
        "duplicate pairs of six lines, two modules of impl": lambda: duplicates(plain_impl, within=False),
        "duplicate pairs of six lines, one module of impl": lambda: duplicates(plain_impl, within=True),
        "names in three modules or more outside families": lambda: homonyms(product),
        "classes of one name": lambda: class_homonyms(product),
        "file names in three rooms or more": lambda: file_homonyms(product),
        "records of more than twelve fields": lambda: _each(large_records, product),
        "functions of more than eight parameters, outside families": lambda: _each(long_signatures, apart),
        "five parameters or more without Args:, product": lambda: _each(undescribed_parameters, plain),
        "parameters of one letter outside mathematics": lambda: _each(one_letter_parameters, plain),
        "cycle of modules": lambda: cycle(graph()),
        "cycle of rooms": lambda: cycle_of_rooms(graph()),
        "lines of code, product": lambda: _each(code_lines, product),
        "section headings, product": lambda: _each(section_headings, product),
        "comment lines, product": lambda: _each(comment_lines, product),
    }


def sizes(root: Path) -> dict[str, str]:
    """The figures that are a number of lines or words, which nothing needs to be parsed for."""
    return {
        "lines, installed": str(sum(len(module.text.splitlines()) for module in modules(root))),
        "words of ARCHITECTURE.md": str(len((root / "ARCHITECTURE.md").read_text(encoding="utf-8").split())),
    }


def figures(root: Path) -> dict[str, str]:
    """The table: what is counted, and how many there are."""
    table = {name: str(len(count())) for name, count in counts(root).items()}
    for folder in FOLDERS:
        own = modules(root, folder)
        ratio = 1000 * len(_each(comment_lines, own)) / len(_each(code_lines, own))
        table[f"comment lines per 1000 lines of code, {folder}"] = f"{ratio:.1f}"
    ratio = 1000 * int(table["comment lines, product"]) / int(table["lines of code, product"])
    table["comment lines per 1000 lines of code, product"] = f"{ratio:.1f}"
    count, fullest = largest_folder(modules(root))
    table["modules in the fullest folder"] = f"{count} ({Path(fullest).relative_to(root)})"
    length, name = max(pair for module in modules(root) for pair in function_lengths(module))
    table["longest function, lines"] = f"{length} ({name})"
    return {**table, **sizes(root)}


def main() -> None:
    """Print the table for a root; with the name of a figure after it, print that figure's places instead."""
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    if not (root / "pyproject.toml").is_file():
        sys.exit(f"house: got root={sys.argv[1]!r}, need the root of a checkout, which has a pyproject.toml")
    if len(sys.argv) > 2:
        print(*counts(root)[sys.argv[2]](), sep="\n")
        return
    table = figures(root)
    width = max(map(len, table))
    for name, figure in table.items():
        print(f"{name:{width}}  {figure}")


if __name__ == "__main__":
    main()
