"""The decompositions for torch's forward AD: installed in processes of their own, for that cannot be undone."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from opassay.impl import decompositions
from opassay.impl.forward_ad import registry as decomposition_registry
from opassay.impl.operator.expression import attach

pytestmark = pytest.mark.slow

aten = torch.ops.aten
SETUP = """
import torch
from torch.autograd import forward_ad
from opassay.impl import decompositions as d
aten = torch.ops.aten

def tangents(f, *operands):
    with forward_ad.dual_level():
        torch.manual_seed(0)
        outputs = f(*(forward_ad.make_dual(t, torch.randn_like(t)) for t in operands))
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return [y if y is None else forward_ad.unpack_dual(y) for y in outputs]

x, g = torch.randn(3, 4, dtype=torch.bfloat16), torch.randn(3, 4, dtype=torch.bfloat16)
soft = x.softmax(1)
softmax = lambda g, y: aten._softmax_backward_data(g, y, 1, torch.bfloat16)
mean, rstd = x.mean(1, keepdim=True), torch.rand(3, 1).bfloat16()
norm = lambda g, x, mask: aten.native_layer_norm_backward(g, x, (4,), mean, rstd, None, None, mask)
"""


def _run(body: str) -> str:
    """What the program prints; it ends with an error if anything fails in it."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", SETUP + body], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_installed_before_any_forward_ad() -> None:
    _run("""
d.install_jvp_decompositions()
d.install_jvp_decompositions()
assert d.installed()
(y,) = tangents(softmax, g, soft)
assert torch.equal(y.primal, softmax(g, soft)) and y.tangent.dtype is torch.bfloat16

# What the op does not return, it does not return with a tangent either.
assert [y is None for y in tangents(lambda g, x: norm(g, x, (True, False, False)), g, x)] == [False, True, True]
assert norm(g, x, (True, False, False))[1] is None

# Under transforms, in any order, and in reverse mode.
f = lambda g, y: aten._softmax_backward_data(g, y, 1, torch.float64)
closed = lambda g, y: y * (g - (g * y).sum(1, keepdim=True))
G, Y = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64).softmax(1)
for transform in (
    lambda f: torch.func.jacfwd(torch.func.jacfwd(f, 1), 0)(G, Y),
    lambda f: torch.func.jacfwd(torch.func.jacrev(f, 1), 0)(G, Y),
    lambda f: torch.func.jacrev(torch.func.jacfwd(f, 1), 0)(G, Y),
    lambda f: torch.func.vmap(torch.func.jacfwd(f, 1))(G[None], Y[None]),
):
    ours, need = transform(f), transform(closed)
    assert (ours - need).abs().max() < 2**-40 * need.abs().max(), transform

# The switch between ours and torch's own.
with d.jvp_decompositions(False):
    (theirs,) = tangents(softmax, g, soft)
with d.jvp_decompositions():
    (again,) = tangents(softmax, g, soft)
assert torch.equal(again.tangent, y.tangent) and not torch.equal(theirs.tangent, y.tangent)
""")


def test_a_block_leaves_torch_s_own_behind() -> None:
    _run("""
with d.jvp_decompositions():
    (ours,) = tangents(softmax, g, soft)
(theirs,) = tangents(softmax, g, soft)
assert not torch.equal(theirs.tangent, ours.tangent)
d.install_jvp_decompositions()
(again,) = tangents(softmax, g, soft)
assert torch.equal(again.tangent, ours.tangent)
""")


@pytest.mark.parametrize("use", ["tangents(softmax, g, soft)", "torch.func.jvp(torch.sin, (x,), (x,))"])
def test_after_any_forward_ad_it_is_too_late(use: str) -> None:
    output = _run(f"""
{use}
try:
    d.install_jvp_decompositions()
except d.TooLateError as err:
    print(err)
assert not d.installed()
""")
    assert "need a process in which no forward AD has run" in output


def test_without_torchscript_nothing_can_be_registered() -> None:
    output = _run("""
import os
os.environ["PYTORCH_JIT"] = "0"
try:
    d.install_jvp_decompositions()
except RuntimeError as err:
    print(err)
""")
    assert "got PYTORCH_JIT=0" in output


def test_what_forward_ad_decomposes_is_what_can_be_installed() -> None:
    """Without any registration, an op with a formula of its own has a tangent, and one without raises."""
    output = _run("""
level = torch._C._enter_dual_level()  # not make_dual, which would register torch's own
operands = {
    aten.trace.default: (x,),
    aten.log_sigmoid_forward.default: (x,),
    aten._softmax_backward_data.default: (g, soft, 1, torch.bfloat16),
    aten._log_softmax_backward_data.default: (g, soft, 1, torch.bfloat16),
    aten.native_layer_norm_backward.default: (g, x, (4,), mean, rstd, None, None, (True, False, False)),
}
for op, args in operands.items():
    dual = torch._VF._make_dual(args[0], args[0], level=level)
    try:
        op(dual, *args[1:])
        assert not d.installable(op), op
    except NotImplementedError as err:
        assert d.installable(op), op
""")
    assert output == ""


def test_the_table_has_the_ops_and_their_signatures() -> None:
    assert len(decompositions.decomposition_table_for_jvp) == 11
    for overload, function in decompositions.decomposition_table_for_jvp.items():
        names = [argument.name for argument in overload._schema.arguments]
        assert list(function.__annotations__)[:-1] == names, overload


@pytest.mark.parametrize(
    ("name", "overload"),
    [
        ("softmax_backward_data", aten._softmax_backward_data.default),
        ("trace", aten.trace.default),
        ("native_layer_norm_backward", aten.native_layer_norm_backward.default),
        ("softmax", None),
        ("no such op", None),
    ],
)
def test_the_overload_of_a_public_name(name: str, overload: object) -> None:
    assert decompositions.overload_of(name) is overload


def test_registering_twice_is_refused_or_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    table: dict[object, object] = {}
    monkeypatch.setattr(decomposition_registry, "decomposition_table_for_jvp", table)
    first = decompositions.register_decomposition_for_jvp(aten.trace)(lambda self: self)
    assert decompositions.maybe_register_decomposition(aten.trace.default)(len) is len
    assert table == {aten.trace.default: first}
    with pytest.raises(ValueError, match="not registered yet"):
        decompositions.register_decomposition_for_jvp(aten.trace.default)(len)


def test_statistics_carry_their_dependence_on_the_input() -> None:
    x = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    saved = 1 / (x.detach().var(1, correction=0, keepdim=True) + 0.25).sqrt()
    mean, rstd = decompositions.recompute_mean_var(x, saved, [1], keepdim=True)
    (slope,) = torch.autograd.grad(rstd.sum(), x)
    centred = x.detach() - mean.detach()
    assert (slope + saved**3 * centred / 8).abs().max() <= 2**-48
    assert (rstd - saved).abs().max() <= 2**-50


def test_attach_takes_value_from_one_and_derivatives_from_the_other() -> None:
    value, x = torch.tensor([-0.0, torch.nan, torch.inf]).bfloat16(), torch.randn(3, requires_grad=True)
    y = attach(value, 3 * x)
    assert torch.equal(y.view(torch.int16), value.view(torch.int16))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, torch.full((3,), 3.0))
    batched = torch.func.vmap(attach, (None, 0))(value, torch.randn(2, 3))
    assert batched.shape == (2, 3)
