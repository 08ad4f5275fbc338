"""One ONNX operator as a function of arrays, run by ONNX Runtime on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def run_operator(name: str, *inputs: torch.Tensor, opset: int = 21, **attributes: Any) -> torch.Tensor:
    """The output of an operator on float32 inputs."""
    import onnxruntime
    from onnx import TensorProto, helper

    arrays = {f"input{position}": tensor.numpy() for position, tensor in enumerate(inputs)}
    node = helper.make_node(name, list(arrays), ["output"], **attributes)
    results = [
        helper.make_tensor_value_info(key, TensorProto.FLOAT, list(array.shape)) for key, array in arrays.items()
    ]
    graph = helper.make_graph(
        [node], "one", results, [helper.make_tensor_value_info("output", TensorProto.FLOAT, None)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 10
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (output,) = session.run(None, arrays)
    return torch.from_numpy(np.asarray(output))
