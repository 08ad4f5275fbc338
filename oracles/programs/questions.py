"""How a program ends: what it prints, and whether the fault is there."""

from __future__ import annotations

from collections.abc import Sequence

from ..bound.accept import Edges
from ..op.script import Script, ScriptMaker

SAME_BITS = (
    "def same(a, b):",
    "    if a is None or b is None:",
    "        return a is b",
    "    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}",
    "    if a.dtype != b.dtype or a.shape != b.shape:",
    "        return False",
    "    kind = kinds[a.element_size()]",
    "    return torch.equal(a.detach().contiguous().view(kind), b.detach().contiguous().view(kind))",
    "",
)


def of_element(
    make_script: ScriptMaker, output: int, index: tuple[int, ...], exact: str, edges: Edges, name: str
) -> Script:
    """Whether one element of `outputs` is outside its accept set.

    Args:
        make_script: makes the lines that compute `outputs`. output, index: the element. name: of the element.
        exact: its exact value, decimal. edges: the least and the largest number that would have been accepted.
    """
    where = ", ".join(map(str, index)) or "..."
    allowed, condition = _allowed(edges)
    return make_script().then(
        f"computed = float(outputs[{output}][{where}])",
        f"exact = {exact!r}  # in real arithmetic",
        *allowed,
        f'print(f"{name}: computed {{computed!r}}, exact {{exact}}, allowed {{allowed}}")',
        f"sys.exit(not ({condition}))",
    )


def _allowed(edges: Edges) -> tuple[tuple[str, ...], str]:
    """Lines that set `allowed`, and the condition for `computed` to be accepted."""
    if edges.not_finite:
        return ('allowed = "what is not finite: inf, -inf or nan"',), "computed != computed or abs(computed) == inf"
    if edges.low != edges.low:
        return ('allowed = "nan"',), "computed != computed"
    lines = f"low, high = {edges.low!r}, {edges.high!r}", 'allowed = f"{low!r} to {high!r}"'
    return lines, "low <= computed <= high"


def of_exception(make_script: ScriptMaker, name: str) -> Script:
    """Whether an exception is raised where outputs are computed.

    Args:
        make_script: makes the lines that compute outputs. name: of the outputs.
    """
    script = make_script()
    lines = (
        "try:",
        *(f"    {line}" if line else "" for line in script.lines),
        "except BaseException as error:",
        f'    print(f"{name}: computed {{type(error).__name__}}: {{error}}; a result is allowed, and no error")',
        "    sys.exit(1)",
        f'print("{name}: computed a result, and nothing was raised")',
        "sys.exit(0)",
    )
    return Script(script.values, lines, script.imports)


def of_equality(make_script: ScriptMaker, expression: str, need: object, name: str) -> Script:
    """Whether an attribute of outputs, such as a shape, is what it must be.

    Args:
        make_script: makes the lines that compute `outputs`. expression: of the attribute. need: its right value.
        name: of the attribute.
    """
    return make_script().then(
        f"computed, need = {expression}, {need!r}",
        f'print(f"{name}: computed {{computed}}, allowed {{need}}")',
        "sys.exit(computed != need)",
    )


def of_bits(script: Script, name: str) -> Script:
    """Whether the lists of tensors `got` and `need` differ in a bit.

    Args:
        script: the lines that compute both. name: of the lists.
    """
    return Script(script.values, (*SAME_BITS, *script.lines), script.imports).then(
        "different = [i for i, (a, b) in enumerate(zip(got, need)) if not same(a, b)]",
        "for i in different:",
        f'    print(f"{name}: out[{{i}}] computed {{got[i]}}, allowed is the same as {{need[i]}}, bit for bit")',
        f'print(f"{name}: {{len(different)}} of {{len(need)}} outputs differ in their bits")',
        "sys.exit(bool(different) or len(got) != len(need))",
    )


def of_condition(script: Script, condition: str, messages: Sequence[str]) -> Script:
    """Whether a condition holds, which is the fault.

    Args:
        script: the lines before it. condition: an expression. messages: expressions that are printed.
    """
    return script.then(f"print({', '.join(messages)})", f"sys.exit(bool({condition}))")
