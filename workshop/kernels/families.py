"""Which ops have kernels on CUDA, by family; and what is asked of them. This module imports nothing, torch least."""

from __future__ import annotations

FAMILIES: dict[str, tuple[str, ...]] = {
    "softmax": ("softmax", "log_softmax"),
    "norms": ("layer_norm", "group_norm", "batch_norm"),
    "losses": ("nll_loss", "cross_entropy"),
    "pointwise": ("log_sigmoid",),
    "linalg": ("trace",),
    "response_norm": ("cross_map_lrn2d",),
}
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
DTYPES = ("float32", "bfloat16", "float16", "float64")
"""The first three are what a run of all asks for. float64 is bound by arithmetic on GPUs that have few units for it."""
