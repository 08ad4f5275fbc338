"""`pytest --opassay-watch`: a test fails where a call that it makes is outside of its bound."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]
_TESTS = """
import torch
library = torch.library.Library("watched_tests", "DEF")
library.define("double(Tensor x) -> Tensor")
library.impl("double", lambda x: x * 2.001, "CPU")

def test_right():
    assert torch.ones(3).exp().sum() > 0

def test_outside():
    assert torch.ops.watched_tests.double(torch.ones(3)).shape == (3,)

def test_that_fails_by_itself():
    torch.ones(2) + 1
    assert 1 == 2
"""
_SPECS = 'import opassay; opassay.spec("watched_tests::double", lambda x: x + x)'


@pytest.mark.slow
def test_a_test_fails_where_a_call_is_outside(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(_TESTS)
    specs = pytester.makepyfile(specs=_SPECS)
    result = pytester.runpytest_subprocess("--opassay-watch", "--opassay-specs", str(specs), "-p", "no:randomly")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*watched_tests::double*times its bound*", "*assert 1 == 2*"])


@pytest.mark.slow
def test_without_the_option_nothing_is_watched(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(_TESTS)
    pytester.runpytest_subprocess().assert_outcomes(passed=2, failed=1)
