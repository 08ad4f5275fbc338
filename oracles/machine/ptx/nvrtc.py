"""NVIDIA's runtime compiler, which makes PTX of CUDA C++ without a GPU and without a driver: by its library alone."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .cuda_headers import find_folders, host_headers, include_folders


def library_paths() -> list[Path]:
    """The libraries of NVRTC that are installed as packages, the latest version first."""
    return [path for folder in find_folders() for path in sorted(folder.glob("lib/libnvrtc.so.*[0-9]"), reverse=True)]


@functools.cache
def _library() -> ctypes.CDLL:
    """The library.

    Raises:
        ImportError: it is not installed.
    """
    paths = library_paths()
    if not paths:
        raise ImportError("cuda_kernel: NVRTC is not installed; pip install 'opassay[cuda-source]' brings it, on Linux")
    library = ctypes.CDLL(str(paths[0]))
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


#: What to do where a header is not found.
_ON_HEADERS = (
    "\npip install 'opassay[cuda-source]' brings CUDA's headers; --include-path=FOLDER among options has others"
)


def compile_source(source: str, name: str, architecture: str, options: Sequence[str]) -> tuple[str, str]:
    """PTX of CUDA C++, and the name that a kernel has there.

    Args:
        source: text of a file. name: of the kernel, an expression such as `scale<float>`, too.
        architecture: "sm_90" say. options: further ones of NVRTC.

    Raises:
        ImportError: NVRTC is not installed. RuntimeError: the source does not compile; with the compiler's log.
    """
    library, program = _library(), ctypes.c_void_p()
    headers = host_headers(source)
    words = [f"--gpu-architecture={architecture.replace('sm', 'compute')}", "--generate-line-info", *options]
    words += [f"--include-path={folder}" for folder in include_folders()]
    file = "".join(letter if letter.isalnum() or letter == "_" else "" for letter in name) + ".cu"
    texts, names = _texts(headers.values()), _texts(headers)
    _require(
        library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), file.encode(), len(headers), texts, names)
    )
    try:
        _require(library.nvrtcAddNameExpression(program, name.encode()))
        failed = library.nvrtcCompileProgram(program, len(words), _texts(words))
        if failed:
            log = _text(program, "ProgramLog").strip()
            advice = _ON_HEADERS * ("cannot open source file" in log)
            raise RuntimeError(f"cuda_kernel: {name} does not compile:\n{log}{advice}")
        lowered = ctypes.c_char_p()
        _require(library.nvrtcGetLoweredName(program, name.encode(), ctypes.byref(lowered)))
        return _text(program, "PTX"), (lowered.value or b"").decode()
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _texts(texts: Iterable[str]) -> Any:
    encoded = [text.encode() for text in texts]
    return (ctypes.c_char_p * len(encoded))(*encoded)


def _text(program: Any, what: str) -> str:
    library, size = _library(), ctypes.c_size_t()
    _require(getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    _require(getattr(library, f"nvrtcGet{what}")(program, text))
    return text.value.decode(errors="replace")


def _require(status: int) -> None:
    if status:
        raise RuntimeError(f"cuda_kernel: NVRTC: {_library().nvrtcGetErrorString(status).decode()}")
