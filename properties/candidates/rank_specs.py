"""A spec that is written for the parts of one rank, with collectives of torch.distributed, as a function of the whole.

What is hard here: the ranks run one after the other in one thread, so that a tracer sees all of it, and a rank cannot
go on where it needs what later ones pass. So it is stopped there, and begun anew once all have come to that call: the
first n calls are known then, and each pass over the ranks adds one.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

from ...reference.meeting import ANY, Post, results_of
from .arguments import CallArguments, Tensor
from .host.module_files import GivenError, SpecFile
from .placements import RETURN, Placements, placements_of
from .specification import SpecError, Specification, specification

#: Of torch's reductions, as `collectives.REDUCTIONS` has them.
_SUM: Any = dist.ReduceOp.SUM


class _StopError(BaseException):
    """Ends a rank that needs what others have not passed yet; no Exception, so that a spec does not catch it."""


class _Waited:
    """What a call gives that is waited for."""

    def wait(self, *_: Any) -> bool:
        return True


@dataclass
class _Passes:
    """The calls of all ranks, as far as they are known.

    Attributes:
        size, rank: how many ranks there are, and which one runs. posts: of each rank, in the order of its calls.
    """

    size: int
    rank: int = 0
    posts: list[list[Post]] = field(default_factory=list)
    _count: int = 0

    def begin(self, rank: int) -> None:
        """Run a rank from its beginning."""
        self.rank, self._count = rank, 0

    def call(
        self, op: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], root: int = ANY, reduction: Any = None
    ) -> _Waited:
        """What a rank gets of its next call, written into its outputs; `_StopError` where that is not known yet."""
        number, self._count = self._count, self._count + 1
        if any(len(posts) <= number for posts in self.posts):
            if len(self.posts[self.rank]) <= number:
                # As it is now: the rank may write there once it goes on, in another pass.
                name = "" if reduction is None else str(reduction).rpartition(".")[2].lower()
                tensors = [t.clone() for t in inputs]
                post = Post(number, op, RETURN, list(range(self.size)), tensors, op, root=root, reduction=name)
                self.posts[self.rank].append(post)
            raise _StopError
        posts = [each[number] for each in self.posts]
        if len({each.agreed for each in posts}) > 1:
            raise SpecError(f"ranks of the spec make different calls: {', '.join(each.text for each in posts)}")
        passed, mine = [each.tensors for each in posts], posts[self.rank]
        results = results_of(op, passed, self.rank, mine.root, mine.reduction, range(self.size))
        for y, value in zip(outputs, results, strict=True):
            y.copy_(value.reshape(y.shape))
        return _Waited()

    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """What stands for functions of torch.distributed."""
        call, size = self.call, self.size

        def scatter(y: Tensor, xs: Sequence[Tensor], op: Any = _SUM, **_: Any) -> _Waited:
            return call("reduce_scatter", xs, [y], reduction=op)

        def exchange(y: Tensor, x: Tensor, take: Any = None, give: Any = None, **_: Any) -> _Waited:
            pieces = [t.split(splits or [len(t) // size] * size) for t, splits in ((x, give), (y, take))]
            return call("all_to_all", pieces[0], pieces[1])

        return {
            "get_rank": lambda *_: self.rank,
            "get_world_size": lambda *_: size,
            "is_initialized": lambda: True,
            "barrier": lambda *_, **__: call("barrier", [], []),
            "all_reduce": lambda t, op=_SUM, **_: call("all_reduce", [t], [t], reduction=op),
            "broadcast": lambda t, src=0, **_: call("broadcast", [t], [t], src),
            "all_gather": lambda ys, x, **_: call("all_gather", [x], ys),
            "all_gather_into_tensor": lambda y, x, **_: call("all_gather", [x], y.view(size, -1).unbind()),
            "reduce_scatter": scatter,
            "reduce_scatter_tensor": lambda y, x, op=_SUM, **_: scatter(y, x.reshape(size, -1).unbind(), op),
            "all_to_all": lambda ys, xs, **_: call("all_to_all", xs, ys),
            "all_to_all_single": exchange,
        }


@contextlib.contextmanager
def _in_place(functions: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Put functions in the place of those of torch.distributed."""
    module: Any = dist
    before = {name: getattr(module, name) for name in functions}
    try:
        for name, function in functions.items():
            setattr(module, name, function)
        yield
    finally:
        for name, function in before.items():
            setattr(module, name, function)


def problem_of_whole(problem: SpecFile, mesh: Sequence[int], seed: int) -> SpecFile:
    """The problem with a spec of whole tensors: its own, unless that calls torch.distributed.

    Args:
        mesh: see `Placements`; empty where there are no ranks. seed: of a call of the whole.

    Raises:
        GivenError: the placements are none. SpecError: what calls torch.distributed is a module.
    """
    if not mesh or not _calls_ranks(problem.spec, CallArguments.of(problem.draw(seed))):
        return problem
    try:
        placements = placements_of(problem.placements, mesh)
    except ValueError as err:
        raise GivenError(str(err)) from err
    if isinstance(problem.spec, torch.nn.Module):
        raise SpecError("calls torch.distributed and is a module, need a function of one rank's parts")
    return replace(problem, spec=_whole(problem.spec, placements))


def _calls_ranks(spec: Callable[..., Any], arguments: CallArguments) -> bool:
    """Whether a spec calls torch.distributed."""

    def stop(*_: Any, **__: Any) -> Any:
        raise _StopError

    args = arguments.changed(torch.clone).args
    try:
        with _in_place(dict.fromkeys(_Passes(1).functions(), stop)), torch.no_grad():
            spec(**args) if isinstance(args, dict) else spec(*args)
    except _StopError:
        return True
    except Exception:
        return False
    return False


def _whole(spec: Callable[..., Any], placements: Placements) -> Callable[..., Any]:
    """The function of whole tensors that a function of one rank's parts is on all ranks."""

    @functools.wraps(spec)
    def whole(*args: Any, **named: Any) -> Any:
        arguments = CallArguments.of(named or args).with_names(spec)
        passes = _Passes(placements.size, posts=[[] for _ in range(placements.size)])
        while True:
            results = [_run(spec, passes, placements, arguments, rank) for rank in range(placements.size)]
            ends = [result is not None for result in results]
            if all(ends):
                return _put_together(results, placements)
            if any(ends):
                raise SpecError("ranks of the spec make different numbers of calls")

    cast(Any, whole).at_size = lambda size: _whole(spec, placements.with_size(size))
    return whole


def spec_of_world(spec: Specification, size: int) -> Specification:
    """A spec on another number of ranks: itself, unless it is written for the parts of one."""
    at_size = getattr(spec.function, "at_size", None)
    return spec if at_size is None else replace(specification(at_size(size)), domain=spec.domain)


def _run(
    spec: Callable[..., Any], passes: _Passes, placements: Placements, arguments: CallArguments, rank: int
) -> tuple[Any] | None:
    """What a spec gives on a rank; None where it has come to a call that is not known yet."""
    passes.begin(rank)
    labels = [arguments.label(i) for i in range(len(arguments.tensors))]
    parts = [placements.cut(t, placements.of(label), rank) for t, label in zip(arguments.tensors, labels, strict=True)]
    # Every pass begins with what the caller has given.
    args = arguments.with_tensors([part.clone() for part in parts]).args
    try:
        with _in_place(passes.functions()):
            return (spec(**args) if isinstance(args, dict) else spec(*args),)
    except _StopError:
        return None


def _put_together(results: Sequence[Any], placements: Placements) -> Any:
    """The results of all ranks as one."""
    flat = [pytree.tree_flatten_with_path(result[0]) for result in results]
    joined = []
    for i, (path, leaf) in enumerate(flat[0][0]):
        name = f"{RETURN}{pytree.keystr(path)}"
        parts = [each[0][i][1] for each in flat]
        is_tensor = isinstance(leaf, Tensor)
        joined.append(placements.join(parts, placements.of(name), lambda *_: None) if is_tensor else leaf)
    return pytree.tree_unflatten(joined, flat[0][1])
