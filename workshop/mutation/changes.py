"""What a change is: other nodes that may stand at a place of a syntax tree, each a mistake that somebody could make."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Set
from typing import Any

from .spots import Spot

#: (what kind of mistake it is, the node in place of the right one).
Change = tuple[str, ast.AST]

_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.MatMult: ast.Mult,
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
#: Functions that are easily taken for each other.
_NAMES = {
    "sum": "mean", "mean": "sum", "amax": "amin", "amin": "amax", "maximum": "minimum", "minimum": "maximum",
    "max": "min", "min": "max", "any": "all", "all": "any", "exp": "expm1", "expm1": "exp", "log": "log1p",
    "log1p": "log", "sqrt": "rsqrt", "rsqrt": "sqrt", "sqrt_": "rsqrt_", "rsqrt_": "sqrt_", "add": "sub",
    "sub": "add", "add_": "sub_", "sub_": "add_", "mul": "div", "div": "mul", "mul_": "div_", "div_": "mul_",
    "isnan": "isinf", "isinf": "isnan", "isneginf": "isposinf", "zeros_like": "ones_like", "ones_like": "zeros_like",
    "new_zeros": "new_ones", "new_ones": "new_zeros", "zeros": "ones", "ones": "zeros", "softmax": "log_softmax",
    "log_softmax": "softmax", "addcmul": "addcdiv", "addcmul_": "addcdiv_", "clamp_min": "clamp_max",
    "clamp_max": "clamp_min", "square": "abs", "square_": "abs_", "unsqueeze": "squeeze", "movedim": "transpose",
}  # fmt: skip
#: Functions of two arguments whose order says nothing; `tree_unflatten` tells leaves and structure apart itself.
_SYMMETRIC = frozenset(
    ("promote_types", "wider", "max", "min", "maximum", "minimum", "mul", "logaddexp", "tree_unflatten")
)
#: Keywords that change no result of one device and one memory format, or only say that lengths are equal: neither they
#: nor what is given for them is changed.
_SILENT = frozenset(("strict", "device"))
#: Attributes of torch that say a format or a special value, and what is written in their place by mistake.
_FORMATS = {"float32": "bfloat16", "float64": "float32", "nan": "inf", "inf": "nan"}


def changes_at(spot: Spot, modules: Set[str]) -> Iterator[Change]:
    """The changes at a place. `modules` are the names that the file has for modules."""
    node = spot.node
    if isinstance(node, ast.stmt):
        yield from _of_statement(node)
    elif isinstance(node, ast.Call):
        yield from _of_call(node, modules)
    elif isinstance(node, ast.Constant):
        silent = isinstance(spot.parent, ast.keyword) and spot.parent.arg in _SILENT
        yield from () if silent else _of_constant(node)
    else:
        yield from _of_expression(node)
    if isinstance(spot.parent, ast.If | ast.While | ast.IfExp) and spot.field == "test":
        yield "condition always true", ast.Constant(True)
        yield "condition never true", ast.Constant(False)


def _of_statement(node: ast.stmt) -> Iterator[Change]:
    match node:
        case ast.Raise():
            yield "error dropped", ast.Pass()
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield "statement dropped", ast.Pass()
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if _reads(value, name):
            yield "statement dropped", ast.Pass()
    if isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC:
        yield "operator", _with(node, op=_ARITHMETIC[type(node.op)]())


def _of_expression(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            yield "operator", _with(node, op=_ARITHMETIC[type(op)]())
            yield "right operand dropped", left
            yield "left operand dropped", right
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            yield "sign or negation dropped", operand
        case ast.Compare(ops=[op]) if type(op) in _COMPARISONS:
            for other in _COMPARISONS[type(op)]:
                yield "comparison", _with(node, ops=[other()])
        case ast.BoolOp(op=op, values=values):
            yield "and for or", _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
            for i in range(len(values)):
                rest = [*values[:i], *values[i + 1 :]]
                yield "condition dropped", rest[0] if len(rest) == 1 else _with(node, values=rest)
        case ast.comprehension(ifs=[_, *_]):
            yield "condition dropped", _with(node, ifs=[])
        case ast.Subscript(value=value, slice=ast.Slice(), ctx=ast.Load()):
            yield "slice dropped", value
        case ast.Attribute(value=ast.Name(id="torch"), attr=name) if name in _FORMATS:
            yield "format or special value", _with(node, attr=_FORMATS[name])


def _of_constant(node: ast.Constant) -> Iterator[Change]:
    value = node.value
    if isinstance(value, bool):
        yield "constant", ast.Constant(not value)
    elif isinstance(value, int):
        yield "constant", ast.Constant(value + 1)
        if value == 1:
            yield "constant", ast.Constant(0)
    elif isinstance(value, float):
        yield "constant", ast.Constant(2.0 * value if value else 1.0)


def _of_call(node: ast.Call, modules: Set[str]) -> Iterator[Change]:
    function, first = node.func, node.args[0] if node.args else None
    match function:
        case ast.Attribute(value=receiver, attr=name) if not _is_module(receiver, modules):
            yield "call dropped", receiver
        case ast.Name() | ast.Attribute() if first is not None and not isinstance(first, ast.Starred):
            yield "call dropped", first
    renamed = _rename_function(function)
    if renamed is not None:
        yield "function", _with(node, func=renamed)
    name = (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
    starred = any(isinstance(argument, ast.Starred) for argument in node.args[:2])
    if len(node.args) > 1 and not starred and name not in _SYMMETRIC:
        one, two, *rest = node.args
        if ast.dump(one) != ast.dump(two):
            yield "arguments swapped", _with(node, args=[two, one, *rest])
    for i, keyword in enumerate(node.keywords):
        if keyword.arg is not None and keyword.arg not in _SILENT:
            yield "keyword dropped", _with(node, keywords=[*node.keywords[:i], *node.keywords[i + 1 :]])


def _rename_function(function: ast.expr) -> ast.expr | None:
    match function:
        case ast.Attribute(value=value, attr=name) if name in _NAMES:
            return ast.Attribute(value, _NAMES[name], ast.Load())
        case ast.Name(id=("min" | "max" | "any" | "all") as name):
            return ast.Name(_NAMES[name], ast.Load())
    return None


def _is_module(node: ast.expr, modules: Set[str]) -> bool:
    """Whether an expression names a module, or something in one, whose functions are not methods of a value."""
    if isinstance(node, ast.Attribute):
        return _is_module(node.value, modules)
    return isinstance(node, ast.Name) and node.id in modules


def _reads(value: ast.expr, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(value))


def _with(node: Any, **fields: Any) -> Any:
    """A copy of a node that differs in some fields; what it holds is shared."""
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def modules_of(tree: ast.Module) -> frozenset[str]:
    """The names that a file has for modules, and for classes: what stands before a dot without being a value."""
    named: Callable[[ast.alias], str] = lambda alias: (alias.asname or alias.name).partition(".")[0]  # noqa: E731
    modules = {"torch"}
    for node in tree.body:
        match node:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                modules |= {named(alias) for alias in names}
            case ast.ClassDef(name=name):
                modules.add(name)
    return frozenset(modules)
