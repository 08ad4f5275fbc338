"""Exceptions that say something of this machine, and nothing of the candidate that raised them."""

from __future__ import annotations

import os
import re
import traceback
from pathlib import Path
from types import ModuleType

import numpy as np
import torch

from ..verdicts.violation import error_lines, error_name

#: Words by which host code says that its tensors have to be on a GPU, and marks of a line that looks for one.
_WANTS_GPU = re.compile(
    r"\b(cuda|gpu) (tensors?|devices?|only|(is )?not available)\b|from the 'CPU' backend|\bCUDA_HOME\b"
    r"|\b(be|tensors?|inputs?|needs?|requires?|only) (on )?(an? |the )?(cuda|gpu)\b",
    re.IGNORECASE,
)
_LOOKS_FOR_GPU = ("is_cuda", "current_accelerator")
#: What is said of it, and what torch's version of CUDA is where a GPU is rehearsed, which has not all of one.
ASKS, REHEARSED = "asks for a GPU, and there is none here", "rehearsed"
_LACKS = re.compile(
    r"module 'torch\._C' has no attribute|object has no attribute '_[Cc]uda|from the 'CUDA' backend|libcuda|cudart"
    r"|from 'torch\._C'|dummy base class|requires CUDA support|without support for the specified device|NVTX"
    r"|Torch not compiled with CUDA|built without CUDA|without CUDA support|'DeviceUtilities' object"
    r"|rehearsal: (?!race|memory of)|SplitError|cuda_kernel: .* does not compile|NVRTC is not installed"
)
#: What a wire of torch's says of collectives that it does not have.
_NO_COLLECTIVE = re.compile(
    r"Cannot use ReduceOp\.\w+ with Gloo|RuntimeError: Invalid scalar type$"
    r"|(ProcessGroup|[Bb]ackend )\w+.* does not (support|implement)"
)
_CUDA, _TORCH, _NUMPY = (f"{Path(file).parent}/" for file in (torch.cuda.__file__, torch.__file__, np.__file__))


def beyond_machine(err: BaseException) -> str:
    """What to do, in a sentence, where an exception says nothing of the candidate; empty where it may say something."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    cause, in_kernel = err, type(err).__name__ == "InterpreterError"
    while cause.__cause__ is not None:
        cause = cause.__cause__
    frames = traceback.extract_tb(cause.__traceback__)
    if not frames:
        return ""
    text = ": ".join([error_name(cause), *error_lines(cause)[:1]])
    theirs = [each for each in frames if f"{os.sep}site-packages{os.sep}" not in each.filename] or frames
    place = f"{text}, at {theirs[-1].filename}:{theirs[-1].lineno}: {theirs[-1].line}"[:400]
    file, triton = frames[-1].filename, f"{os.sep}triton{os.sep}"
    without_drivers = "0 active drivers" in text
    if interpreted and (without_drivers or (in_kernel and _is_of_interpreter(cause, file))):
        return f"Triton's interpreter cannot run this: {place}; judge it by --compiled"
    if without_drivers and triton in file:
        return (
            "has Triton kernels, and there is no GPU here: add --compiled or --interpret (in Python compiled='sm_90')"
        )
    if torch.version.cuda == REHEARSED:
        is_lacking = isinstance(cause, AttributeError | AssertionError) and file.startswith(_CUDA)
        lacks = is_lacking or _LACKS.search(text) is not None
        return f"the rehearsal device has not all of a GPU: {place}; judge it where there is one" if lacks else ""
    if file.startswith(_TORCH) and _NO_COLLECTIVE.search(text):
        return f"its wire has no such collective: {place}; judge it by --wire judge"
    looks = any(sign in str(frames[-1].line) for sign in _LOOKS_FOR_GPU)
    of_driver = "'_Driver' object" in text
    if of_driver or (
        not torch.cuda.is_available() and (file.startswith(_CUDA) or looks or _WANTS_GPU.search(text) is not None)
    ):
        advice = "judge it by --device rehearsal, or take the device of its inputs (x.device) in place of cuda"
        return f"{ASKS}: {place}; {advice}"
    return ""


def _is_of_interpreter(cause: BaseException, file: str) -> bool:
    """Whether what ended an interpreted kernel is a thing that the interpreter lacks, and no mistake of the kernel."""
    if isinstance(cause, AssertionError):  # tl.static_assert
        return False
    if isinstance(cause, AttributeError):  # of a number, which is a tensor where kernels are compiled
        return type(cause.obj).__module__ == "builtins" and not isinstance(cause.obj, ModuleType)
    if isinstance(cause, TypeError) and "NoneType" in str(cause):  # a function of the GPU's library gives None
        return True
    # Triton's language has the checks of what a kernel says; what lies below is the interpreter's.
    of_triton = f"{os.sep}triton{os.sep}" in file and f"{os.sep}triton{os.sep}language{os.sep}" not in file
    return of_triton or file.startswith((_TORCH, _NUMPY))
