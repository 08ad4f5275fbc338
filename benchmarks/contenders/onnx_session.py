"""Operators of ONNX as functions of arrays, run by ONNX Runtime on the CPU."""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .bridges import of_numpy
from .contender import Contender, Function, read_table

_TABLE = Path(__file__).parent / "tables" / "onnxruntime.txt"
_OPSET = 21


def contenders() -> Iterator[Contender]:
    text = _TABLE.read_text()
    names = {line.partition("(")[0]: operator(line.partition("(")[0]) for line in text.splitlines()}
    return read_table("onnxruntime", text, {**names, "np": np}, of_numpy, contract="torch+flush")


def operator(name: str) -> Function:
    """The first output of an operator, as a function of arrays and attributes."""

    def call(*arrays: Any, domain: str = "", **attributes: Any) -> Any:
        signature = tuple((array.dtype.str, array.ndim) for array in arrays)
        session = _session(name, domain, signature, repr(sorted(attributes.items())))
        arrays_by_name = {f"input{i}": np.ascontiguousarray(array) for i, array in enumerate(arrays)}
        return session.run(None, arrays_by_name)[0]

    return call


@functools.cache
def _session(name: str, domain: str, signature: tuple[tuple[str, int], ...], attributes: str) -> Any:
    helper, onnxruntime = importlib.import_module("onnx.helper"), importlib.import_module("onnxruntime")
    named = [f"input{i}" for i in range(len(signature))]
    node = helper.make_node(name, named, ["output"], domain=domain, **dict(ast.literal_eval(attributes)))
    descriptions = [
        helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [None] * rank)
        for key, (dtype, rank) in zip(named, signature, strict=True)
    ]
    element = (
        descriptions[-1].type.tensor_type.elem_type if name == "Where" else descriptions[0].type.tensor_type.elem_type
    )
    output = helper.make_tensor_value_info("output", element, None)
    graph = helper.make_graph([node], "one", descriptions, [output])
    sets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=sets)
    model.ir_version = 10
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
