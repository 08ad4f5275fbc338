"""Faults in copies of QuACK's sources, each a line that is another one."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple


class SourceEdit(NamedTuple):
    """A fault: the row that has it, its dtype, and what stands in the place of what in a file of a package."""

    row: str
    dtype: str
    file: str
    old: str
    new: str
    package: str = "quack"


_NORMS, _LOSS = "rmsnorm.py", "cross_entropy.py"
_PRODUCT, _EPILOGUE, _LONG = "gemm_sm90.py", "gemm_base.py", "gemm of long rows"
PLANTED = {
    "rmsnorm: no eps": SourceEdit(
        "rmsnorm",
        "float32",
        _NORMS,
        "rstd = cute.math.rsqrt(sum_sq_x / shape[1] + eps, fastmath=True)",
        "rstd = cute.math.rsqrt(sum_sq_x / shape[1], fastmath=True)",
    ),
    "rmsnorm: divided by n - 1": SourceEdit(
        "rmsnorm",
        "float32",
        _NORMS,
        "rstd = cute.math.rsqrt(sum_sq_x / shape[1] + eps, fastmath=True)",
        "rstd = cute.math.rsqrt(sum_sq_x / (shape[1] - 1) + eps, fastmath=True)",
    ),
    "rmsnorm: no weight": SourceEdit(
        "rmsnorm",
        "bfloat16",
        _NORMS,
        "            y *= w\n",
        "            y *= 1.0\n",
    ),
    "rmsnorm: one row too many": SourceEdit(
        "rmsnorm",
        "float32",
        _NORMS,
        "        tXrO.store(y.to(tXrO.element_type))\n        if row < shape[0]:",
        "        tXrO.store(y.to(tXrO.element_type))\n        if row <= shape[0]:",
    ),
    "rmsnorm: no wait for the copies": SourceEdit(
        "rmsnorm",
        "float32",
        _NORMS,
        "        cute.arch.cp_async_wait_group(0)\n        cute.autovec_copy(tXsX, tXrX)\n",
        "        cute.autovec_copy(tXsX, tXrX)\n",
    ),
    "rmsnorm: gradient: sign": SourceEdit(
        "rmsnorm",
        "float32",
        _NORMS,
        "dx = (wdy - x_hat * mean_xhat_wdy) * rstd",
        "dx = (wdy + x_hat * mean_xhat_wdy) * rstd",
    ),
    "rmsnorm: gradient: a mean of n - 1": SourceEdit(
        "rmsnorm",
        "float32",
        _NORMS,
        "                    / shape[1]\n",
        "                    / (shape[1] - 1)\n",
    ),
    "rmsnorm: gradient: weight by x": SourceEdit(
        "rmsnorm",
        "bfloat16",
        _NORMS,
        "tXrdW.store(tXrdW.load() + dout * x_hat)",
        "tXrdW.store(tXrdW.load() + dout * x)",
    ),
    "rmsnorm: gradient: a row is left out": SourceEdit(
        "rmsnorm",
        "float32",
        _NORMS,
        "for i in cutlass.range_constexpr(1, const_expr(tiler_mn[0])):\n                        tXrdW_other",
        "for i in cutlass.range_constexpr(2, const_expr(tiler_mn[0])):\n                        tXrdW_other",
    ),
    "rmsnorm: gradient: no barrier": SourceEdit(
        "rmsnorm",
        "float32",
        _NORMS,
        "                    cute.autovec_copy(tXrdW, tXsdW)\n                cute.arch.barrier()\n",
        "                    cute.autovec_copy(tXrdW, tXsdW)\n",
    ),
    "layernorm: variance: behind the row": SourceEdit(
        "layernorm",
        "float32",
        _NORMS,
        "utils.fill_oob(tXrX_centered, tXpX, fill_value=Float32.zero)",
        "pass",
    ),
    "layernorm: variance: of n - 1": SourceEdit(
        "layernorm",
        "float32",
        _NORMS,
        "sum_sq_x_sub_mean / shape[1] + eps",
        "sum_sq_x_sub_mean / (shape[1] - 1) + eps",
    ),
    "layernorm: gradient: one mean": SourceEdit(
        "layernorm",
        "float32",
        _NORMS,
        "dx = (wdy - mean_wdy - x_hat * mean_xhat_wdy) * rstd",
        "dx = (wdy - x_hat * mean_xhat_wdy) * rstd",
    ),
    "layernorm: gradient: bias by x": SourceEdit(
        "layernorm",
        "bfloat16",
        _NORMS,
        "tXrdB.store(tXrdB.load() + dout)",
        "tXrdB.store(tXrdB.load() + dout * x_hat)",
    ),
    "softmax: zeros behind the row": SourceEdit(
        "softmax in order",
        "float32",
        "softmax.py",
        "utils.fill_oob(tXsX, tXpX, -tXsX.element_type.inf)",
        "utils.fill_oob(tXsX, tXpX, tXsX.element_type.zero)",
    ),
    "softmax: no maximum": SourceEdit(
        "softmax in order",
        "float32",
        "reduce.py",
        "    exp_x = cute.math.exp2(x * log2_e - (max_x * log2_e), fastmath=True)\n    sum_exp_x",
        "    exp_x = cute.math.exp2(x * log2_e, fastmath=True)\n    sum_exp_x",
    ),
    "softmax: sum of half of the lanes": SourceEdit(
        "softmax in order",
        "bfloat16",
        "reduce.py",
        "        operator.add,\n        threads_in_group=min(threads_per_row, cute.arch.WARP_SIZE),",
        "        operator.add,\n        threads_in_group=min(threads_per_row, cute.arch.WARP_SIZE) // 2,",
    ),
    "softmax: gradient: not times y": SourceEdit(
        "softmax in order",
        "float32",
        "softmax.py",
        "dx = y * (dy - dot)",
        "dx = y * dy - dot",
    ),
    "softmax: gradient: sum of dy": SourceEdit(
        "softmax in order",
        "bfloat16",
        "softmax.py",
        "            dy * y,\n",
        "            dy,\n",
    ),
    "cross_entropy: no maximum in the loss": SourceEdit(
        "cross_entropy",
        "float32",
        _LOSS,
        "lse = max_x + cute.math.log(denom, fastmath=True)",
        "lse = cute.math.log(denom, fastmath=True)",
    ),
    "cross_entropy: logit of another row": SourceEdit(
        "cross_entropy",
        "float32",
        _LOSS,
        "Float32(mTargetLogit[row, target])",
        "Float32(mTargetLogit[0, target])",
    ),
    "cross_entropy: gradient: another label": SourceEdit(
        "cross_entropy",
        "float32",
        _LOSS,
        "mask[i] = tXcFull[i][1] == target",
        "mask[i] = tXcFull[i][1] == target + 1",
    ),
    "cross_entropy: gradient: not times the loss's": SourceEdit(
        "cross_entropy",
        "bfloat16",
        _LOSS,
        "grad = grad * dloss * target_weight",
        "grad = grad * target_weight",
    ),
    "topk: gradient: negated": SourceEdit(
        "topk in order",
        "bfloat16",
        "topk.py",
        "            grads = dvals_f32\n",
        "            grads = -dvals_f32\n",
    ),
    "gemm: the last tile of k is left out": SourceEdit(
        "gemm",
        "bfloat16",
        "tile_scheduler.py",
        "            return 0, k_tile_total\n",
        "            return 0, k_tile_total - 1\n",
    ),
    "gemm: no wait for the copies": SourceEdit(
        "gemm",
        "bfloat16",
        _PRODUCT,
        "            # Wait for TMA copies to complete\n"
        "            ab_pipeline.consumer_wait(ab_read_state, peek_ab_full_status)\n",
        "",
    ),
    "gemm: released before it is multiplied": SourceEdit(
        _LONG,
        "bfloat16",
        _PRODUCT,
        "warpgroup.wait_group(k_pipe_mmas)",
        "warpgroup.wait_group(k_pipe_mmas + 1)",
    ),
    "gemm: the second tile of k begins anew": SourceEdit(
        "gemm",
        "bfloat16",
        _PRODUCT,
        "            zero_init = Boolean(False)\n            ab_read_state.advance()\n",
        "            zero_init = Boolean(True)\n            ab_read_state.advance()\n",
    ),
    "gemm: rows of one block for both": SourceEdit(
        "gemm of more rows",
        "bfloat16",
        _PRODUCT,
        '"multicast_dim": "M",',
        '"multicast_dim": "N",',
    ),
    "gemm: copied over what is being read": SourceEdit(
        _LONG,
        "bfloat16",
        _EPILOGUE,
        "            pipeline.producer_acquire(producer_state, peek_empty_status)\n",
        "            pipeline.producer_acquire(producer_state, Boolean(True))\n",
    ),
    "gemm: the scheduler's phase is not flipped": SourceEdit(
        "gemm",
        "bfloat16",
        "tile_scheduler.py",
        "            self._pipeline_state.phase ^ 1,\n",
        "            self._pipeline_state.phase,\n",
    ),
    "gemm: float16 by way of bfloat16": SourceEdit(
        "gemm",
        "float16",
        "gemm_default_epi.py",
        "        apply_linear_epilogue(\n            tRS_rD,\n            tRS_rC,\n            params.alpha",
        "        tRS_rD.store(tRS_rD.load().to(cutlass.BFloat16).to(Float32))\n"
        "        apply_linear_epilogue(\n            tRS_rD,\n            tRS_rC,\n            params.alpha",
    ),
    "gemm: sent before all have stored": SourceEdit(
        "gemm",
        "bfloat16",
        _EPILOGUE,
        "                cute.arch.fence_view_async_shared()\n                epilogue_barrier.arrive_and_wait()\n"
        "                if is_tma_warp:\n                    for i",
        "                cute.arch.fence_view_async_shared()\n"
        "                if is_tma_warp:\n                    for i",
    ),
    "gemm: stored over what is being sent": SourceEdit(
        "gemm",
        "bfloat16",
        _EPILOGUE,
        "                if is_tma_warp:\n                    epi_store_pipeline.producer_acquire()\n            else:",
        "                pass\n            else:",
    ),
    "gemm_add: the first part for all": SourceEdit(
        "gemm_add",
        "bfloat16",
        _EPILOGUE,
        "tiled_copy_s2r, tSR_sC[None, None, None, epi_read_state.index], tSR_rC",
        "tiled_copy_s2r, tSR_sC[None, None, None, 0], tSR_rC",
    ),
    "mlp: gradient: where the argument is negative": SourceEdit(
        "mlp",
        "bfloat16",
        "activation.py",
        "        x_pos = Boolean(x > 0)\n        return dout if x_pos else Float32(0.0), relu(x, loc=loc, ip=ip)\n",
        "        x_pos = Boolean(x < 0)\n        return dout if x_pos else Float32(0.0), relu(x, loc=loc, ip=ip)\n",
    ),
}


def plant(fault: SourceEdit) -> None:
    """Have this process import a copy of a package that has a fault; it must not have been imported.

    Raises:
        ModuleNotFoundError: the package is not installed.
        ValueError: the file has not what is to be replaced, or has it more than once: another version.
    """
    package = importlib.util.find_spec(fault.package)
    if package is None or package.origin is None:
        raise ModuleNotFoundError(f"{fault.package} is not installed", name=fault.package)
    folder = Path(tempfile.mkdtemp(prefix="planted-"))
    shutil.copytree(Path(package.origin).parent, folder / fault.package)
    file = folder / fault.package / fault.file
    text = file.read_text()
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.file}: got {text.count(fault.old)} times {fault.old!r}, need it once")
    file.write_text(text.replace(fault.old, fault.new))
    sys.path.insert(0, str(folder))
