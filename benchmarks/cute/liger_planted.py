"""Faults in copies of Liger's sources, as `planted.py` has QuACK's."""

from __future__ import annotations

from .planted import SourceEdit

_FOLDER = "ops/backends/_cutedsl"
_NORM, _REDUCE = f"{_FOLDER}/_cute_lib/rmsnorm_fwd.py", f"{_FOLDER}/_cute_lib/reduce.py"
_BACKWARD, _SOFTMAX = f"{_FOLDER}/rms_norm.py", f"{_FOLDER}/softmax.py"
_RSTD = "rstd = cute.math.rsqrt(sum_sq_x / shape[1] + eps, fastmath=True)"
_STORED = "tXrO.store(y.to(tXrO.element_type))\n        if row < shape[0]:"
_PARTS, _BARRIER = "                    cute.autovec_copy(tXrdW, tXsdW)\n", "                cute.arch.barrier()\n"
_POWERS = "cute.math.exp2((x - max_x) * log2_e"
_OFFSET = "                w = tXrW.load().to(Float32)\n                if const_expr(self.weight_offset != 0.0):"
#: Row, what is wrong -> dtype, file, what stands there, and what in its place.
_EDITS = {
    ("rms_norm", "no eps"): ("float32", _NORM, _RSTD, _RSTD.replace(" + eps", "")),
    ("rms_norm", "divided by n - 1"): ("float16", _NORM, _RSTD, _RSTD.replace("shape[1]", "(shape[1] - 1)")),
    ("rms_norm", "no weight"): ("bfloat16", _NORM, "            y *= w\n", "            y *= 1.0\n"),
    ("rms_norm", "one row too many"): ("float32", _NORM, _STORED, _STORED.replace("<", "<=")),
    ("rms_norm", "no wait for the copies"): ("float32", _NORM, "cute.arch.cp_async_wait_group(0)\n", "pass\n"),
    ("rms_norm", "gradient: sign"): (
        "float32", _BACKWARD, "dx = (wdy - x_hat * mean_xhat_wdy)", "dx = (wdy + x_hat * mean_xhat_wdy)",
    ),
    ("rms_norm", "gradient: weight by x"): ("bfloat16", _BACKWARD, "dout * x_hat_dw)", "dout * x)"),
    ("rms_norm", "gradient: a row is left out"): (
        "float32", _BACKWARD, "range_constexpr(1, const_expr(tiler_mn[0]))", "range_constexpr(2, tiler_mn[0])",
    ),
    ("rms_norm", "gradient: no barrier"): ("float32", _BACKWARD, _PARTS + _BARRIER, _PARTS),
    ("rms_norm of gemma", "no offset"): ("float32", _NORM, "w += Float32(self.weight_offset)", "pass"),
    ("rms_norm of gemma", "gradient: no offset"): (
        "float32", _BACKWARD, f"\n{_OFFSET}", f"\n{_OFFSET.replace('self.weight_offset != 0.0', 'False')}",
    ),
    ("softmax", "no maximum"): ("float32", _SOFTMAX, _POWERS, "cute.math.exp2(x * log2_e"),
    ("softmax", "zeros behind the row"): (
        "float32", _SOFTMAX, "-tXsX.element_type.inf", "tXsX.element_type.zero",
    ),
    ("softmax", "sum of half of the lanes"): (
        "bfloat16", _REDUCE, "min(threads_per_row, cute.arch.WARP_SIZE),", "min(threads_per_row, 32) // 2,",
    ),
    ("softmax", "gradient: not times y"): ("float32", _SOFTMAX, "dx = y * (dy - dot)\n", "dx = y * dy - dot\n"),
    ("softmax", "gradient: sum of dy"): ("float16", _SOFTMAX, "            dy * y,\n", "            dy,\n"),
}  # fmt: skip
PLANTED = {
    f"liger {row}: {what}": SourceEdit(f"liger {row}", *edit, package="liger_kernel")
    for (row, what), edit in _EDITS.items()
}
