"""What all tests need of the process that runs them."""

from __future__ import annotations

import functools
import gc
import importlib
import signal
import sys
from collections.abc import Iterator

import pytest

# A shell starts what runs in the background with SIGINT ignored, and nohup starts everything with SIGHUP ignored; so do
# all processes that these start. Tests send both, to this process and to others, and would wait for ever for what they
# do.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

#: Of the calls of a candidate at sizes where kernels may take another branch a fast test asks the first so many.
_FEW_CALLS = 12

# The collection makes millions of objects, and almost all of them stay: it takes two thirds of its time without the
# collector of garbage, which looks at them again and again.
gc.disable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-call", action="store_true", help="ask candidates in fast tests at every size, as slow ones do"
    )


@pytest.fixture(autouse=True)
def few_calls(request: pytest.FixtureRequest) -> Iterator[None]:
    """Candidates are asked at few sizes, unless the test is slow or about just that (the mark `every_call`).

    Nobody is judged where torch was not imported by the collection. The fixture `monkeypatch` would be undone behind
    those of the test, which must not see what it replaces.
    """
    all_of_them = any(request.node.get_closest_marker(mark) for mark in ("slow", "every_call"))
    if "torch" in sys.modules and not all_of_them and not request.config.getoption("--every-call"):
        workload = importlib.import_module("opassay.properties.candidates.workload")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(workload, "_MOST_CALLS", _FEW_CALLS)
            importlib.import_module("tests.known_specs").keep_known_specs(patch)
            yield
    else:
        yield


@pytest.fixture
def copied_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of candidates are copies of this one, as those of a judge that does nothing else are.

    For tests of what is asked and told of candidates: a new process would import torch for each, some four seconds.
    """
    host = "opassay.properties.candidates.host"
    copying, program = (importlib.import_module(f"{host}.{name}") for name in ("copying", "program"))
    copies = functools.partial(copying.ProcessCopy, program.main)
    monkeypatch.setattr(importlib.import_module(f"{host}.quarters"), "COMMAND", copies)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Some cases of a test with the mark `one_fast_in` or `fast_cases` are slow.

    Raises:
        pytest.UsageError: such a mark names no case of its test.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, alike in cases.items():
        fast = {item for place, item in enumerate(alike) if _is_fast(item, place)}
        words = {word for mark in alike[0].iter_markers("fast_cases") for word in mark.args}
        lost = words.difference(*map(_words, alike))
        if lost and not any("::" in arg for arg in config.args):
            raise pytest.UsageError(f"{name}: no case is called {', '.join(sorted(lost))}")
        for item in alike:
            if item not in fast:
                item.add_marker(pytest.mark.slow)


def _is_fast(item: pytest.Item, place: int) -> bool:
    """Whether a test, or a case in that place among those of its test, is fast as far as these marks say."""
    one_in, named = item.get_closest_marker("one_fast_in"), item.get_closest_marker("fast_cases")
    if named:
        return not _words(item).isdisjoint(named.args)
    return one_in is None or place % one_in.args[0] == 0


def _words(item: pytest.Item) -> set[str]:
    """What a case may be called: what stands in the brackets of its name, and each part of that."""
    text = item.nodeid.partition("[")[2].removesuffix("]")
    return {text, *text.split("-")}


def pytest_collection_finish() -> None:
    """Set aside what the imports and the collection made: every collection of garbage would look at all of it."""
    gc.freeze()
    gc.enable()
