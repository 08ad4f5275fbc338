"""Imports run one way: the graph is read from the source, and every module is imported."""

from __future__ import annotations

import ast
import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.import_graph import FOLDERS, PACKAGE, Edge, cycle, cycle_of_rooms, edges, modules
from tests.syntax import nodes, parse

REPOSITORY = Path(__file__).resolve().parents[1]

#: folder -> what else of ours its modules may import: a folder, or one module of it.
MAY_IMPORT: dict[str, set[str]] = {
    "reference": set(),
    "impl": {"reference.meeting"},  # how ranks meet, which the judge of somebody's ranks shares
    "oracles": {"reference"},
    "properties": {"oracles", "reference", "impl"},
    "reports": {
        "reference.distributions",
        "reference.dtypes",
        "oracles.verdicts.verdict",
        "oracles.verdicts.data",
        "oracles.verdicts.explanations",
        "oracles.verdicts.watched",
        "oracles.verdicts.witnesses",
    },
    "api": {"impl", "oracles", "properties", "reference"},
}
#: single modules, by pattern of their name, that may import more.
MAY_ALSO_IMPORT: list[tuple[str, str, set[str]]] = [
    ("reports", "cli.", {"properties"}),  # the command line starts what it reports
    ("reports", "cli.project.contracts", {"oracles.bound.terms"}),  # which says what each contract allows
    ("reports", "pytest_", {"properties"}),  # and so does the plugin
    ("api", "__main__", {"reports"}),  # python -m opassay is the command line
]
#: What needs the package and is no part of it: no module imports it.
BESIDE = {"tests", "benchmarks", "workshop"}
#: folder -> packages of others that none of its modules may import.
FORBIDDEN_PACKAGES: dict[str, set[str]] = {
    "reference": {"torch", "pytest", "hypothesis"},
    "impl": {"mpmath", "gmpy2", "pytest", "hypothesis", "click", "rich", "jinja2", "msgspec", "junitparser"},
    "reports": {"torch", "mpmath"},
}
#: What a report needs of the oracles, where neither torch nor mpmath is installed: these import each other alone.
WITHOUT_TORCH = tuple(
    f"oracles.verdicts.{name}" for name in ("verdict", "data", "cleaning", "codes", "explanations", "watched")
)


def violations(graph: list[Edge]) -> list[str]:
    """Every forbidden edge, as text; empty when all imports run the declared way."""
    return [str(edge) for edge in graph if not _allowed(edge)]


def _allowed(edge: Edge) -> bool:
    folder, _, rest = edge.importer.partition(".")
    if not edge.ours:
        return edge.imported not in FORBIDDEN_PACKAGES.get(folder, set()) | BESIDE
    if edge.importer in WITHOUT_TORCH:
        return edge.imported.startswith(WITHOUT_TORCH)
    allowed = {folder, *MAY_IMPORT[folder]}
    for also_folder, prefix, more in MAY_ALSO_IMPORT:
        if folder == also_folder and rest.startswith(prefix):
            allowed |= more
    return any(edge.imported == name or edge.imported.startswith(name + ".") for name in allowed)


# --------------------------------------------------------------------------------------------- the repository


@functools.cache
def _repository() -> list[Edge]:
    return edges(REPOSITORY)


def test_no_import_runs_a_forbidden_way() -> None:
    assert violations(_repository()) == []


def test_no_imports_form_a_cycle() -> None:
    assert cycle(_repository()) == []
    assert cycle_of_rooms(_repository()) == []


def test_every_import_of_ours_is_relative_outside_api() -> None:
    absolute = [
        f"{name}:{node.lineno}"
        for name, path in modules(REPOSITORY).items()
        if not name.startswith("api")
        for node in nodes(parse(path))
        if (isinstance(node, ast.Import) and any(alias.name.split(".")[0] == PACKAGE for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == PACKAGE)
    ]
    assert absolute == []


def imports_of_benchmarks(tree: ast.Module) -> list[int]:
    """The lines that import a module of benchmarks: a test of the product must not depend on what measures it."""
    return [
        node.lineno
        for node in nodes(tree)
        if (isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "benchmarks" for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "benchmarks")
    ]


def test_no_test_imports_a_benchmark() -> None:
    for path in (REPOSITORY / "tests").rglob("*.py"):
        assert imports_of_benchmarks(parse(path)) == [], path
    source = ast.parse("import os\nfrom benchmarks.run import main\ndef f():\n    import benchmarks")
    assert imports_of_benchmarks(source) == [2, 4]


# ------------------------------------------------------------------------------------------ planted violations


def _plant(root: Path, **files: str) -> Path:
    for folder in FOLDERS:
        (root / folder).mkdir()
        (root / folder / "__init__.py").write_text("")
    for name, text in {"oracles__verdicts__verdict": "import enum", **files}.items():
        path = root.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True, parents=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text)
    return root


def test_a_tree_that_keeps_the_rules_passes(tmp_path: Path) -> None:
    root = _plant(
        tmp_path,
        reference__exact="import mpmath\nfrom . import formats",
        reference__formats="import numpy.typing",
        oracles__accept="from ..reference.exact import Array\nfrom .verdicts.verdict import Cell",
        properties__cells="from ..impl import layer_norm\nfrom ..oracles import accept",
        reports__text="from ..oracles.verdicts.verdict import Cell",
        reports__cli__run="from ...properties import cells\nfrom .. import text",
    )
    assert violations(edges(root)) == []
    assert cycle(edges(root)) == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("reference__exact", "import numpy\nimport torch.nn", "reference.exact:2 imports torch"),
        ("reference__exact", "def f():\n    from torch import nn", "reference.exact:2 imports torch"),
        ("reports__html", "from torch import Tensor", "reports.html:1 imports torch"),
        ("impl__softmax", "from mpmath import mp", "impl.softmax:1 imports mpmath"),
        ("impl__softmax", "from ..reference import exact", "impl.softmax:1 imports reference"),
        ("reference__exact", "from .. import impl", "reference.exact:1 imports impl"),
        ("oracles__accept", "import opassay.impl", "oracles.accept:1 imports impl"),
        ("oracles__accept", "from ..reports import text", "oracles.accept:1 imports reports"),
        ("oracles__verdicts__verdict", "from .. import accept", "oracles.verdicts.verdict:1 imports oracles"),
        ("oracles__accept", "import workshop.mutation", "oracles.accept:1 imports workshop"),
        ("properties__plan", "from opassay.reports import text", "properties.plan:1 imports reports"),
        ("reports__text", "from ..oracles import accept", "reports.text:1 imports oracles"),
        ("reports__text", "from ..properties import plan", "reports.text:1 imports properties"),
        ("impl__deep", "from .. import something", "impl.deep:1 imports api"),
        (
            "oracles__op",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..properties import plan",
            "oracles.op:3 imports properties",
        ),
    ],
)
def test_a_planted_forbidden_import_is_found(tmp_path: Path, name: str, text: str, expected: str) -> None:
    assert violations(edges(_plant(tmp_path, **{name: text}))) == [expected]


@pytest.mark.parametrize(
    "tie",
    [
        "from .b import B",
        "def late():\n    from .b import B",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .b import B",
    ],
    ids=["plain", "in a function", "for types"],
)
def test_a_planted_cycle_is_found(tmp_path: Path, tie: str) -> None:
    root = _plant(tmp_path, oracles__a=tie, oracles__b="from .c import C", oracles__c="from . import a")
    assert cycle(edges(root)) == ["oracles.a", "oracles.b", "oracles.c"]


def test_a_planted_cycle_of_rooms_is_found(tmp_path: Path) -> None:
    texts = {"oracles__one__a": "from ..two import b", "oracles__two__b": "", "oracles__two__c": ""}
    root = _plant(tmp_path, **texts)
    assert cycle_of_rooms(edges(root)) == []
    (root / "oracles" / "two" / "c.py").write_text("from ..one import d")
    (root / "oracles" / "one" / "d.py").write_text("")
    assert cycle(edges(root)) == []
    assert cycle_of_rooms(edges(root)) == ["oracles.one", "oracles.two"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('import importlib\nimportlib.import_module("opassay.properties.far")', 2),
        ('from importlib import import_module\nimport_module("..properties.far", __package__)', 2),
        ('from importlib import import_module\nimport_module("...properties.far", __name__)', 2),
        ('from importlib import import_module\nname = "x"\nimport_module(f"opassay.properties.{name}")', 3),
        ('from importlib import import_module\nTABLE = {"f": "..properties.far"}\nimport_module(TABLE["f"], "x")', 2),
        ('__import__("opassay.properties.far")', 1),
        ('__import__("properties.far", globals(), None, ["far"], 2)', 1),
        ('HOME = {"f": "opassay.properties.far:function"}', 1),
        ('COMMAND = ["python", "-m", "opassay.properties.far"]', 1),
        ('COMMAND = "python3 -m opassay.properties.far --fast"', 1),
        ('import sys\nsys.modules.get("opassay.properties.far")', 2),
    ],
)
def test_a_module_that_a_string_names_is_an_import(tmp_path: Path, text: str, line: int) -> None:
    root = _plant(tmp_path, oracles__near=text, properties__far="")
    assert violations(edges(root)) == [f"oracles.near:{line} imports properties.far"]
    (root / "oracles" / "near.py").write_text(text.replace("properties", "oracles"))
    assert violations(edges(_plant_far(root))) == []
    assert cycle(edges(root)) == ["oracles.far", "oracles.near"]


def _plant_far(root: Path) -> Path:
    """A module that needs the one that names it."""
    (root / "oracles" / "far.py").write_text("from . import near")
    return root


def test_the_program_of_the_package_is_an_import_too(tmp_path: Path) -> None:
    root = _plant(tmp_path, properties__start='COMMAND = ("python", "-m", "opassay")')
    (root / "api" / "__main__.py").write_text("")
    assert violations(edges(root)) == ["properties.start:1 imports api.__main__"]


def test_words_about_modules_are_no_imports(tmp_path: Path) -> None:
    text = '"""opassay.properties.far"""\nprint("see opassay.properties.far")\nSUFFIX = ".far"\n'
    assert violations(edges(_plant(tmp_path, oracles__near=text, properties__far=""))) == []


# ------------------------------------------------------------------------------------------- modules, imported

#: Imports each named module in a child process of its own, warnings being errors, and prints what went wrong.
#: Forked after the heavy packages are loaded: a fresh start of torch per module would take a minute. A module whose
#: import begins with that of another one, which is named with it, is imported in a child of that one's process.
_IMPORT_EACH = """
import importlib, json, sys, traceback, warnings
preload, absent, names = json.loads(sys.argv[1])
for name in preload:
    importlib.import_module(name)
loaded = set(sys.modules)
warnings.simplefilter("error")
for name in names:
    try:
        importlib.import_module(name)
        new = {module.partition(".")[0] for module in set(sys.modules) - loaded}
        assert not new & set(absent), f"{name} brings {sorted(new & set(absent))}"
    except BaseException:
        traceback.print_exc()
        print(name)
"""


def _failures(preload: list[str], absent: list[str], names: list[str], folder: Path) -> str:
    """What a process printed that imported modules one after the other; empty when all is well.

    The order does not matter, because imports form no cycle, not even in functions: what a module needs is imported
    before it, whoever comes first. (mypy refuses `package.module` where nobody has imported that module.)

    Args:
        preload, absent: packages that are there before, and those that no import may bring.
        names: the modules. folder: where the process runs.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _IMPORT_EACH, json.dumps([preload, absent, names])],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout + done.stderr if done.stdout else ""


def _names(*folders: str) -> list[str]:
    """The modules of some folders, by the names under which they are installed."""
    names = [name for name in modules(REPOSITORY) if name.partition(".")[0] in folders and "__main__" not in name]
    return [f"{PACKAGE}.{name}".replace(f"{PACKAGE}.api", PACKAGE) for name in names]


def test_every_module_imports_and_warns_of_nothing(tmp_path: Path) -> None:
    names = _names(*MAY_IMPORT)
    assert {name.split(".")[1] for name in names if "." in name} == (set(MAY_IMPORT) - {"api"}) | {"pytest"}
    assert _failures(["torch", "mpmath", "pytest", "hypothesis"], [], names, tmp_path) == ""


def test_reference_and_reports_never_load_torch(tmp_path: Path) -> None:
    names = [*_names("reference", "reports"), "opassay.oracles.verdicts.verdict"]
    assert _failures([], ["torch"], names, tmp_path) == ""


def test_impl_loads_nothing_of_the_verification(tmp_path: Path) -> None:
    absent = ["mpmath", "sympy", "pytest", "_pytest", "hypothesis", "click", "rich", "jinja2", "msgspec"]
    assert _failures(["torch"], absent, ["opassay", *_names("impl")], tmp_path) == ""


def test_a_process_that_judges_starts_without_compilers(tmp_path: Path) -> None:
    # Whether Triton interprets kernels or compiles them is decided when it is imported, and Dynamo imports it.
    assert _failures(["torch"], ["triton"], ["opassay.properties.places.prepared_program"], tmp_path) == ""


def test_a_module_that_warns_or_brings_too_much_is_found(tmp_path: Path) -> None:
    (tmp_path / "warns.py").write_text("import warnings\nwarnings.warn('old', DeprecationWarning)\n")
    (tmp_path / "brings.py").write_text("import colorsys\n")
    assert "DeprecationWarning: old" in _failures([], [], ["warns"], tmp_path)
    assert "brings ['colorsys']" in _failures([], ["colorsys"], ["brings"], tmp_path)
    assert _failures([], [], ["brings"], tmp_path) == ""
