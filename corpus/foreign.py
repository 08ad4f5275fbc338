"""Functions of other libraries as functions of torch tensors, on the CPU."""

from __future__ import annotations

import importlib
import os
import runpy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .running import ROOT


def by_numpy(function: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """A function of NumPy arrays; takes and gives tensors of the same dtypes."""

    def call(*tensors: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.array(function(*(each.detach().numpy() for each in tensors))))

    return call


def by_jax(function: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """(jax, its arrays...) -> an array, as a function of tensors; float64 is switched on."""

    def call(*tensors: torch.Tensor) -> torch.Tensor:
        os.environ["JAX_PLATFORMS"] = "cpu"
        jax = importlib.import_module("jax")
        jax.config.update("jax_enable_x64", True)
        arrays = (jax.numpy.array(each.detach().numpy()) for each in tensors)
        return torch.from_numpy(np.array(function(jax, *arrays)))

    return call


def by_tinygrad(function: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """(a tinygrad tensor) -> another, as a function of one tensor; it runs in tinygrad's interpreter."""

    def call(tensor: torch.Tensor) -> torch.Tensor:
        os.environ["DEV"] = "PYTHON"
        operands = importlib.import_module("tinygrad").Tensor(tensor.tolist())
        return torch.from_numpy(function(operands).numpy())

    return call


def by_onnxruntime(operator: str) -> Callable[..., torch.Tensor]:
    """An operator of ONNX in a model of its own."""

    def call(*tensors: torch.Tensor) -> torch.Tensor:
        model = runpy.run_path(str(ROOT / "benchmarks" / "findings" / "onnx_model.py"))
        result: torch.Tensor = model["run_operator"](operator, *tensors)
        return result

    return call


def interpret_triton() -> None:
    """Have Triton run kernels in its interpreter; to be called before it is imported."""
    os.environ["TRITON_INTERPRET"] = "1"
