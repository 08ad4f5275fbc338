"""The libraries, and what their tables need: names for the calls, and a bridge from their arrays to tensors."""

from __future__ import annotations

import importlib.metadata
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from benchmarks.public.row import load

from . import bridges, onnx_session, torch_functions, triton_language
from .contender import Contender, read_table

_TABLES = Path(__file__).parent / "tables"
#: What tinygrad's device for tests takes minutes for: calls at 120,000 elements.
_SLOW = ("SIZE:sizes",)


class Absent(Exception):
    """A library cannot be imported here; the text says why."""


@dataclass(frozen=True)
class Library:
    """How kernels of a library are found and called.

    Attributes:
        name: of the distribution. make: () -> its contenders. how: its kernels run, in words.
        environment: what must be set before anything is imported.
        rehearsed: its host code asks for a GPU, so that it runs on the rehearsal device, and in half types alone.
    """

    name: str
    make: Callable[[], Iterator[Contender]]
    how: str = "eager, on the CPU"
    environment: Mapping[str, str] = field(default_factory=dict)
    rehearsed: bool = False


def _of_table(
    name: str, modules: Mapping[str, str], bridge: Callable[[], Any] = lambda: lambda function: function, **more: Any
) -> Callable[[], Iterator[Contender]]:
    """() -> the contenders of a table; `modules` by the names that calls have for them."""

    def make() -> Iterator[Contender]:
        names = {short: load(module) for short, module in modules.items()}
        return read_table(name, (_TABLES / f"{name}.txt").read_text(), names, bridge(), **more)

    return make


_OF_JAX = {
    "jax": "jax", "jnp": "jax.numpy", "nn": "jax.nn", "lax": "jax.lax", "special": "jax.scipy.special",
}  # fmt: skip
_XLA: dict[str, Any] = {"bridge": lambda: bridges.of_jax, "contract": "torch+xla+flush"}
_OF_KORNIA = {name: f"kornia.{name}" for name in ("color", "filters", "enhance", "losses", "geometry")}
_OF_PADDLE = {"paddle": "paddle", "PF": "paddle.nn.functional", "linalg": "paddle.linalg"}
_OF_TORCHMETRICS = {
    name: f"torchmetrics.functional.{module}"
    for name, module in (
        ("regression", "regression"), ("image", "image"), ("audio", "audio"), ("pairwise", "pairwise"),
        ("text", "text"),
    )
}  # fmt: skip
_OF_FLA = {
    "act": "fla.modules.activations.ops", "norm": "fla.modules.norm.layernorm", "l2norm": "fla.modules.norm.l2norm",
    "gate": "fla.modules.norm.fused_norm_gate", "rotary": "fla.modules.rotary.ops", "utils": "fla.ops.utils",
    "ce": "fla.modules.fused_cross_entropy.ops", "linear": "fla.ops.linear_attn", "token": "fla.modules.token_shift",
    "conv": "fla.modules.causal_conv1d", "F": "torch.nn.functional",
    **{name: f"fla.ops.{name}" for name in ("hgrn", "gla", "retention", "rwkv6", "attn")},
    "delta": "fla.ops.delta_rule", "gated_delta": "fla.ops.gated_delta_rule", "simple": "fla.ops.simple_gla",
    "forget": "fla.ops.forgetting_attn",
}  # fmt: skip
_CPU = {"JAX_PLATFORMS": "cpu"}
_REHEARSED = "compiled for sm_90 on the rehearsal device, its PTX executed"
#: Library -> its modules by the names that calls have for them, and what must be set.
_OF_CUDA: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "flag_gems": (
        {"ops": "flag_gems.ops", "fused": "flag_gems.fused"},
        {"GEMS_VENDOR": "nvidia"},
    ),
    "conch-triton-kernels": (
        {
            "norms": "conch.ops.normalization.rms_norm",
            "gemma": "conch.ops.normalization.gemma_rms_norm",
            "silu": "conch.ops.activation.silu_and_mul",
            "gelu": "conch.ops.activation.gelu_tanh_and_mul",
            "fp8": "conch.ops.quantization.fp8",
            "int8": "conch.ops.quantization.int8",
        },
        {},
    ),
    "mamba_ssm": (
        {
            name: f"mamba_ssm.ops.triton.{module}"
            for name, module in (
                ("norm", "layer_norm"),
                ("gated", "layernorm_gated"),
                ("act", "k_activations"),
                ("bmm", "ssd_bmm"),
            )
        },
        {},
    ),
    "unsloth": (
        {
            name: f"unsloth.kernels.{module}"
            for name, module in (
                ("rms", "rms_layernorm"),
                ("norm", "layernorm"),
                ("ce", "cross_entropy_loss"),
                ("swiglu", "swiglu"),
                ("geglu", "geglu"),
                ("added", "fused_add_rms_layernorm"),
            )
        },
        {"UNSLOTH_IS_PRESENT": "1", "UNSLOTH_COMPILE_LOCATION": f"{tempfile.gettempdir()}/unsloth"},
    ),
    "sglang": (
        {
            name: f"sglang.kernels.ops.{module}"
            for name, module in (
                ("softcap", "activation.softcap"),
                ("norm", "layernorm.fused_rmsnorm"),
                ("gemma", "layernorm.gemma4_fused_ops"),
                ("minimax", "layernorm.minimax_m3_rmsnorm"),
                ("norm32", "layernorm.rmsnorm_fp32"),
                ("swiglu", "activation.minimax_m3_swiglu"),
                ("int8", "quantization.int8_kernel"),
            )
        },
        {},
    ),
    "torchao": (
        {"blocks": "torchao.kernel.blockwise_quantization"},
        {},
    ),
}

LIBRARIES: Mapping[str, Library] = {
    each.name: each
    for each in (
        Library("torch", torch_functions.contenders),
        Library("jax", _of_table("jax", _OF_JAX, **_XLA), "compiled by XLA, on the CPU", _CPU),
        Library(
            "flax",
            _of_table("flax", {"jnp": "jax.numpy", "linen": "flax.linen", "nnx": "flax.nnx"}, **_XLA),
            "compiled by XLA, on the CPU", _CPU,
        ),
        Library(
            "optax", _of_table("optax", {"optax": "optax", "jnp": "jax.numpy"}, **_XLA), "compiled by XLA, on the CPU",
            _CPU,
        ),
        Library("onnxruntime", onnx_session.contenders, "CPUExecutionProvider, graphs of one operator"),
        Library(
            "tinygrad",
            _of_table("tinygrad", {}, lambda: bridges.of_tinygrad, contract="torch+exp2+flush", leaves=_SLOW),
            "its device PYTHON; SIZE:sizes is not asked", {"DEV": "PYTHON"},
        ),
        Library("numpy", _of_table("numpy", {"np": "numpy"}, lambda: bridges.of_numpy, contract="torch+numpy")),
        Library(
            "scipy", _of_table("scipy", {"special": "scipy.special"}, lambda: bridges.of_numpy, contract="torch+numpy")
        ),
        Library(
            "mlx",
            _of_table(
                "mlx", {"mx": "mlx.core", "nn": "mlx.nn", "losses": "mlx.nn.losses"}, lambda: bridges.of_mlx,
                contract="torch+exp2",
            ),
        ),
        Library("paddlepaddle", _of_table("paddlepaddle", _OF_PADDLE, lambda: bridges.of_paddle)),
        Library("torchmetrics", _of_table("torchmetrics", _OF_TORCHMETRICS)),
        Library("kornia", _of_table("kornia", _OF_KORNIA)),
        Library(
            "liger-kernel",
            _of_table(
                "liger-kernel", {"liger": "liger_kernel.transformers.functional", "ops": "liger_kernel.ops"},
                compiled="sm_80",
            ),
            "compiled for sm_80, its PTX executed",
        ),
        Library(
            "fla-core", _of_table("fla-core", _OF_FLA, compiled="sm_80"),
            "compiled for sm_80, its PTX executed in every configuration of its tuners, which takes minutes a kernel",
        ),
        Library("triton", triton_language.contenders, "compiled for sm_80, its PTX executed"),
        *(
            Library(name, _of_table(name, modules), _REHEARSED, environment, rehearsed=True)
            for name, (modules, environment) in _OF_CUDA.items()
        ),
    )
}  # fmt: skip
#: Libraries that were looked at and have no kernels here, with the reason.
NOT_HERE: Mapping[str, str] = {
    "quack-kernels": "its kernels of CuTe DSL are judged by `benchmarks/cute_kernels.py`",
    "xformers": "its wheels are for CUDA builds of torch",
    "timm": "it imports torchvision, whose wheel of PyPI has no operators for the CPU build of torch",
    "attorch": "PyPI has no distribution of this name",
    "apex": "the distribution of this name on PyPI is another program",
}


#: Those whose kernels are compiled, which are judged in half types, too; and for what those are.
COMPILED = ("liger-kernel", "fla-core", "triton", *_OF_CUDA)
HALVES, _OF_HALVES = ("bfloat16", "float16"), "sm_90"


def installed_version(name: str) -> str:
    """The version of a distribution without what it was built for; empty where it is not installed."""
    try:
        return importlib.metadata.version(name).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return ""


def contenders(name: str, dtype: str = "float32") -> list[Contender]:
    """The contenders of a library, in a dtype.

    Raises:
        Absent: the library is not installed, or cannot be imported.
    """
    torch.set_num_threads(1)
    library = LIBRARIES[name]
    if library.rehearsed and dtype not in HALVES:
        return []
    if not installed_version(name):
        raise Absent(f"{name} is not installed")
    try:
        every = [each if dtype == "float32" else each.cast(dtype, _OF_HALVES) for each in library.make()]
        return [_move(each) for each in every] if library.rehearsed else every
    except (ImportError, RuntimeError) as err:
        raise Absent(f"{type(err).__name__}: {str(err).partition(chr(10))[0]}") from err


def _move(contender: Contender) -> Contender:
    """The same with its arguments on the rehearsal device."""
    arguments = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.cuda(), contender.arguments)
    return replace(contender, arguments=arguments)
