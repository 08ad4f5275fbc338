"""The expression of `-k`: words joined by `and`, `or`, `not` and parentheses, as pytest has it.

A parser by recursive descent, one function per level of binding: `or` binds least, then `and`, then `not`. It is ours,
because pytest's own one compiles the expression to Python code, and recurses without a limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

# A word ends only at a blank or a parenthesis, because the names of cells hold `::`, `[` and `-`.
_TOKEN = re.compile(r"\s*([()]|[^\s()]+)")
#: How deep parentheses and nots may nest; Python's own stack would allow several hundred.
_DEEPEST = 100

Matcher = Callable[[str], bool]


class KeywordError(ValueError):
    """An expression that cannot be read."""


def matcher(expression: str) -> Matcher:
    """A function that says whether a name holds the words that an expression asks for, in upper or lower case alike.

    Raises:
        KeywordError: the expression cannot be read; the text says where.
    """
    words = _TOKEN.findall(expression)
    if not words:
        raise KeywordError("-k: got an empty expression, need words, and, or, not, ( and )")
    matches, rest = _any(words, 0)
    if rest:
        raise KeywordError(f"-k: got -k={expression!r}, need and, or or the end before {rest[0]!r}")
    return lambda name: matches(name.lower())


def _any(words: list[str], depth: int) -> tuple[Matcher, list[str]]:
    if depth > _DEEPEST:
        raise KeywordError(f"-k: got more than {_DEEPEST} parentheses or nots within each other")
    return _joined(words, "or", any, lambda rest: _joined(rest, "and", all, lambda words: _term(words, depth)))


def _joined(
    words: list[str], joint: str, combine: Callable[[Iterable[bool]], bool],
    reader: Callable[[list[str]], tuple[Matcher, list[str]]],
) -> tuple[Matcher, list[str]]:  # fmt: skip
    part, rest = reader(words)
    parts = [part]
    while rest and rest[0] == joint:
        part, rest = reader(rest[1:])
        parts.append(part)
    return (lambda name: combine(part(name) for part in parts)), rest


def _term(words: list[str], depth: int) -> tuple[Matcher, list[str]]:
    if not words or words[0] in (")", "and", "or"):
        got = repr(words[0]) if words else "the end"
        raise KeywordError(f"-k: got {got} where a word, not or ( is needed")
    word, rest = words[0], words[1:]
    # A `not` nests without any parenthesis, so it has to count its own depth; `_any` counts that of parentheses.
    if word == "not":
        if depth > _DEEPEST:
            raise KeywordError(f"-k: got more than {_DEEPEST} parentheses or nots within each other")
        operand, rest = _term(rest, depth + 1)
        return (lambda name: not operand(name)), rest
    if word == "(":
        inner, rest = _any(rest, depth + 1)
        if not rest or rest[0] != ")":
            raise KeywordError("-k: got ( without its )")
        return inner, rest[1:]
    return (lambda name: word.lower() in name), rest
