"""Which elements of a spec depend on which choice that rounding leaves open, found on its graph.

What this is for: a routed layer chooses experts for every token, and a token's output depends only on its own choice.
So the choices of many tokens may be tried at the same time. Elements that depend on several choices, such as a mean
over all tokens, need every combination.

The label of an element is the pair (least, −largest) of the numbers of the groups of choices that it depends on. What
is computed from several elements has the minima of both numbers. Where an operation is not known here, each element of
its result depends on every choice that its operands depend on.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ...reference.choice import Decidable
from ...reference.ranked import Ranked
from .rules import MOVES
from .rules.table import overloads

#: The number of no group.
_NONE = np.iinfo(np.int64).max
_PRODUCTS = set(overloads("mm bmm addmm baddbmm"))
#: Operations with an index along a dim: where their data, their dim and their index are, and what they write.
_READS_ALONG = set(overloads("gather index_select"))
_WRITES_ALONG = set(overloads("scatter.src scatter.value scatter_add"))
_LOOK_UP = {**dict.fromkeys(overloads("index.Tensor _unsafe_index.Tensor")), **dict.fromkeys(overloads("embedding"))}
#: What moves elements, and more than that: by the values of elements, or of an index.
_BY_VALUES = set(overloads("sort sort.stable topk kthvalue median median.dim max.dim min.dim cummax cummin min"))


class Dependence(torch.fx.Interpreter):
    """The groups that the elements of a graph's values depend on.

    Attributes:
        groups: of the rows of each choice, by the name of its operation; -1 for a row that is not open.
        is_whole: whether some element depends on several groups, so that all rows are one group in truth.
    """

    def __init__(self, graph: torch.fx.GraphModule, choices: Mapping[str, Decidable]) -> None:
        super().__init__(graph)
        self.extra_traceback = False
        self.groups: dict[str, Any] = {}
        self.is_whole = False
        self._choices, self._count = choices, 0

    def of_outputs(self) -> tuple[Any, ...]:
        """For every output the group that each element depends on, -1 for none; after `is_whole`, 0 for all."""
        count = len(self.module.graph.find_nodes(op="placeholder"))  # type: ignore[operator, union-attr]
        labels = super().run(*[None] * count, enable_io_processing=False)
        several = any(label is not None and _several(label).any() for label in labels)
        self.is_whole = self.is_whole or several
        if self.is_whole:
            self.groups = {name: np.where(rows >= 0, 0, -1) for name, rows in self.groups.items()}
        return tuple(None if label is None else _numbers(label, self.is_whole) for label in labels)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return None

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if n.target is operator.getitem:
            return None if args[0] is None else args[0][args[1]]
        values = n.meta["val"]
        labelled = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, np.ndarray)]
        source = self._choices.get(n.name)
        if isinstance(source, Ranked):
            label = self._of_choice(n, _label_of(n.args[0], args[0]))
        elif source is not None:
            own = _along_rule(n, args, kwargs) if labelled else np.full((2, *source.shape), _NONE)
            label = self._of_choice(n, np.array(_fitted(own, source.shape)))
        elif labelled:
            label = _along_rule(n, args, kwargs)
        else:
            return None
        if not isinstance(values, torch.Tensor):
            return [None if each is None else _fitted(label, each.shape) for each in values]
        return _fitted(label, values.shape)

    def _of_choice(self, node: torch.fx.Node, label: Any) -> Any:
        """What the result of a choice depends on: on groups of earlier ones, or each open row on a group of its own.

        Args:
            node: that chooses. label: of its operand where it ranks its elements, else of its elements.
        """
        source = self._choices[node.name]
        rows = label.reshape(2, -1)
        if isinstance(source, Ranked):
            rows = np.stack([source.rows_of(each).min(axis=-1) for each in label]).reshape(2, -1)
        self.is_whole = self.is_whole or bool(_several(rows).any())
        fresh = np.zeros(rows.shape[1], dtype=bool)
        fresh[source.open_rows()] = True
        fresh &= rows[0] == _NONE
        numbers = self._count + np.arange(fresh.sum())
        self._count += len(numbers)
        rows = rows.copy()
        rows[:, fresh] = numbers, -numbers
        self.groups[node.name] = np.where(rows[0] == _NONE, -1, rows[0])
        if not isinstance(source, Ranked):
            return rows.reshape(label.shape)
        axes = [n for i, n in enumerate(label.shape[1:]) if i not in source.axes] + [1] * len(source.axes)
        return np.stack([np.transpose(each.reshape(axes), np.argsort(source.order)) for each in rows])


def _several(label: Any) -> Any:
    return (label[0] != _NONE) & (label[0] != -label[1])


def _numbers(label: Any, is_whole: bool) -> Any:
    return np.where(label[0] == _NONE, -1, 0 if is_whole else label[0])


def _reduced(label: Any, axes: Sequence[int]) -> Any:
    """What elements along some axes depend on together, with these axes of length 1."""
    return label.min(axis=tuple(1 + axis for axis in axes), keepdims=True)


def _fitted(label: Any, shape: Sequence[int]) -> Any:
    """Labels for a result of this shape; those of all elements together where shapes do not match."""
    shape = tuple(shape)
    if label.size == 2 * int(np.prod(shape, dtype=np.int64)):
        return label.reshape((2, *shape))
    try:
        return np.broadcast_to(label, (2, *shape))
    except ValueError:
        whole = label.reshape(2, -1).min(axis=1)
        return np.broadcast_to(whole.reshape(2, *(1,) * len(shape)), (2, *shape))


def _all_together(node: torch.fx.Node, args: Any, kwargs: Any) -> Any:
    leaves = [leaf.reshape(2, -1) for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, np.ndarray)]
    return np.concatenate(leaves, axis=1).min(axis=1)[:, None]


def _along_rule(node: torch.fx.Node, args: Any, kwargs: Any) -> Any:
    """What the elements of a result depend on, where some operand depends on a choice."""
    target: Any = node.target
    shapes = [each.meta["val"].shape for each in node.all_input_nodes if isinstance(each.meta["val"], torch.Tensor)]
    if torch.Tag.pointwise in target.tags or target is torch.ops.aten._to_copy.default:
        return _of_elements(node, args)
    if target in _PRODUCTS:
        return _of_product(node, args)
    if target in _READS_ALONG | _WRITES_ALONG:
        return _at_index(node, args)
    if target is torch.ops.aten.cat.default:
        parts: Any = node.args[0]
        dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
        labels = [_label_of(each, label) for each, label in zip(parts, args[0], strict=True)]
        return np.concatenate(labels, axis=1 + dim % (labels[0].ndim - 1))
    if target in _LOOK_UP and args[0] is None:
        return _looked_up(node, args)
    if len(shapes) == 1 and target in MOVES - _BY_VALUES:
        return np.stack([target(torch.from_numpy(each.copy()), *args[1:], **kwargs).numpy() for each in args[0]])
    if len(shapes) == 1 and args and isinstance(args[0], np.ndarray):
        names = [argument.name for argument in target._schema.arguments]
        named = dict(zip(names, args, strict=False)) | dict(kwargs)
        dims = named.get("dim")
        dims = [dims] if isinstance(dims, int) else dims
        if dims:
            return _reduced(args[0], [dim % (args[0].ndim - 1) for dim in dims])
    return _all_together(node, args, kwargs)


def _label_of(node: Any, label: Any) -> Any:
    """The label of an operand; that of no group where it depends on none."""
    return np.full((2, *node.meta["val"].shape), _NONE) if label is None else label


def _of_elements(node: torch.fx.Node, args: Any) -> Any:
    shape = _shape_of(node)
    label = np.full((2, *shape), _NONE)
    for each in pytree.tree_leaves(args):
        if isinstance(each, np.ndarray):
            label = np.minimum(label, _beside(each, shape))
    return label


def _beside(label: Any, shape: Sequence[int]) -> Any:
    """Labels of an operand that is broadcast to a shape, with as many axes."""
    return label.reshape((2, *(1,) * (len(shape) + 1 - label.ndim), *label.shape[1:]))


def _of_product(node: torch.fx.Node, args: Any) -> Any:
    """Rows of the first factor, columns of the second, and what is added."""
    shape, sources = _shape_of(node), [each for each in node.args if isinstance(each, torch.fx.Node)]
    labels = [_label_of(each, label) for each, label in zip(node.args, args, strict=False) if each in sources]
    *added, a, b = labels
    label = np.minimum(a.min(axis=-1, keepdims=True), b.min(axis=-2, keepdims=True))
    for each in added:
        label = np.minimum(label, _beside(each, shape))
    return label


def _at_index(node: torch.fx.Node, args: Any) -> Any:
    """Reading or writing along a dim by an index: all elements along the dim depend on each other."""
    data, dim, index = _label_of(node.args[0], args[0]), args[1], _label_of(node.args[2], args[2])
    shape = _shape_of(node)
    parts = [data, index] + [each for each in args[3:] if isinstance(each, np.ndarray)]
    if any(each.ndim != data.ndim for each in parts) or data.ndim < 2:
        return _all_together(node, args, {})
    axis = dim % (data.ndim - 1)
    label = np.full((2, *shape), _NONE)
    for each in parts:
        along = _reduced(each, [axis])
        if any(n not in (1, m) for n, m in zip(along.shape[1:], shape, strict=True)):
            return _all_together(node, args, {})
        label = np.minimum(label, along)
    return label


def _looked_up(node: torch.fx.Node, args: Any) -> Any:
    """Elements of what depends on no choice, at indices that do; these count its first axes."""
    shape, indices = _shape_of(node), args[1] if isinstance(args[1], (list, tuple)) else [args[1]]
    sources: Any = node.args[1] if isinstance(node.args[1], (list, tuple)) else [node.args[1]]
    if any(each is None for each in sources):
        return _all_together(node, args, {})
    extent = np.broadcast_shapes(*(each.meta["val"].shape for each in sources))
    label = np.full((2, *extent), _NONE)
    for each in indices:
        if each is not None:
            label = np.minimum(label, _beside(each, extent))
    return np.broadcast_to(label.reshape((2, *extent, *(1,) * (len(shape) - len(extent)))), (2, *shape))


def _shape_of(node: torch.fx.Node) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)
