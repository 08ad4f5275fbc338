"""RMS norm: what its cells do not ask: torch's epsilon and state, what messages say, what is kept for backward."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from opassay import impl
from opassay.impl.norms.rms_norm import _fused_rms_norm, _rms_norm
from opassay.impl.operator.operator import Operator
from opassay.impl.operator.torch_private import has_kernel

Tensor = torch.Tensor
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_eps_it_is_torch_s_machine_epsilon_of_the_sums(dtype: torch.dtype) -> None:
    eps = torch.finfo(torch.float32 if dtype.itemsize == 2 else dtype).eps
    x = torch.linspace(-eps, eps, 8, dtype=torch.float64).to(dtype).view(2, 4)
    assert torch.equal(impl.rms_norm(x, (4,)), impl.rms_norm(x, (4,), None, eps))
    assert not torch.equal(impl.rms_norm(x, (4,)), impl.rms_norm(x, (4,), None, 2.0**-10))
    _, rstd = impl.fused_rms_norm(torch.zeros(2, 4, dtype=dtype), (4,), None, None)
    _, theirs = torch.ops.aten._fused_rms_norm(torch.zeros(2, 4, dtype=dtype), [4], None, None)
    assert rstd.dtype == theirs.dtype
    for statistic in (rstd, theirs):
        assert [round(-2 * math.log2(r)) for r in statistic.flatten().tolist()] == [round(math.log2(eps))] * 2


def test_the_module_reads_torch_s_state_and_torch_reads_its() -> None:
    theirs, ours = torch.nn.RMSNorm((2, 3), 1e-3), impl.RMSNorm((2, 3), 1e-3)
    with torch.no_grad():
        theirs.weight.copy_(torch.arange(6.0).view(2, 3))
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    x = torch.ones(4, 2, 3)
    assert torch.equal(ours(x), impl.rms_norm(x, (2, 3), theirs.weight, 1e-3))


def test_messages_name_the_argument_and_the_rule() -> None:
    x, row = torch.ones(2, 3), torch.ones(3)
    with pytest.raises(TypeError, match=r"rms_norm: got eps='1', need a float"):
        impl.rms_norm(x, (3,), row, "1")  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match=r"fused_add_rms_norm: got residual of shape=\[3\], need the input's shape"):
        impl.fused_add_rms_norm(x, row, (3,))
    with pytest.raises(RuntimeError, match=r"fused_rms_norm_backward: got output_mask=\[True\], need two bools"):
        impl.fused_rms_norm_backward(x, x, (3,), torch.ones(2, 1), row, [True])
    with pytest.raises(RuntimeError, match=r"got rstd of shape=\[2\]"):
        impl.fused_rms_norm_backward(x, x, (3,), torch.ones(2), row, [True, True])


def test_what_is_kept_is_the_sum_and_not_its_terms() -> None:
    x, r, w = (torch.ones(shape, requires_grad=True) for shape in ((2, 3), (2, 3), (3,)))
    saved: list[Tensor] = []

    def pack(t: Tensor) -> Tensor:
        saved.append(t)
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        _, total = impl.fused_add_rms_norm(x, r, (3,), w)
    assert sorted(tuple(t.shape) for t in saved) == [(2, 1), (2, 3), (3,)]
    assert total.untyped_storage().data_ptr() in {t.untyped_storage().data_ptr() for t in saved}
    assert not {t.untyped_storage().data_ptr() for t in saved} & {t.untyped_storage().data_ptr() for t in (x, r)}


@pytest.mark.parametrize(("operator", "name"), [(_rms_norm, "rms_norm"), (_fused_rms_norm, "_fused_rms_norm")])
def test_it_autocasts_on_cuda_where_torch_s_own_does(operator: Operator[Any, Any], name: str) -> None:
    assert bool(operator.kernels.autocast) == has_kernel(f"aten::{name}", "AutocastCUDA")
