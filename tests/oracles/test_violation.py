"""What is told of a subject's exception."""

from __future__ import annotations

import pytest

from opassay.oracles.verdicts.violation import clear, error_lines

ASSERTED = 'x INTERNAL ASSERT FAILED at "/a/b.cpp":614'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{ASSERTED}, please report a bug to PyTorch. Expected self.", f"{ASSERTED}. Expected self."),
        (f"{ASSERTED}, please report a bug to PyTorch. ", f"{ASSERTED}."),
        ("internal error, please report a bug", "internal error."),
        ("Got 3.  (Could this error message be improved?  If so, please report a request to PyTorch.)", "Got 3."),
        ("No rule. Please file an issue to PyTorch at https://a.com/x?y=z.yml, so that it comes. No.", "No rule. No."),
        ("No rule. If you need this, please open an issue on Github.", "No rule."),
        ("This is wrong - please create an issue.", "This is wrong."),
        ("please report the shape that you want", "please report the shape that you want"),
        ("got 1.5 - 2.5, need 3.5; 4", "got 1.5 - 2.5, need 3.5; 4"),
    ],
)  # fmt: skip
def test_what_torch_asks_to_be_told_is_left_out(text: str, message: str) -> None:
    assert error_lines(RuntimeError(text)) == [message]


def test_the_other_lines_stay() -> None:
    text = "first, please report a bug to PyTorch\nsecond. please file an issue\nthird."
    assert error_lines(ValueError(text)) == ["first.", "second.", "third."]


def test_an_assumption_that_is_broken_is_no_clear_error_however_it_is_told() -> None:
    assert not clear(RuntimeError("internal error, please report a bug"))
    assert not clear(RuntimeError(f"{ASSERTED}, please report a bug to PyTorch."))
    assert clear(RuntimeError("float64 alone"))


def test_a_long_text_of_spaces_is_told_at_once() -> None:
    assert error_lines(RuntimeError("a" + " " * 19_000 + "b"))[0].startswith("a ")
