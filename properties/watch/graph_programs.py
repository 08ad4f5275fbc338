"""A piece of a compiled graph that is outside, as a program that needs torch alone."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from ...oracles.op.script import NoProgram, ProgramTensor, Script
from ...oracles.programs.questions import of_element
from ...oracles.programs.writing import assemble
from .call import DispatcherCall, Tensor
from .graph_pieces import SECONDS, TRIES, GraphPiece, PieceSearch
from .judging import CallJudge

#: Bytes of an input that stands in the text; a larger one is in a file beside the program.
_IN_TEXT = 2**14
_SECONDS = 300
#: What a program imports, by a text that only programs that need it have.
_IMPORTS = {"pathlib.": "import pathlib", "device(": "from torch import device"}


class _Expression:
    """Python that stands for a value where values are written."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def write_programs(folder: Path, graphs: Mapping[str, DispatcherCall], judge: CallJudge) -> dict[str, str]:
    """Write the programs of compiled graphs that are outside: name -> in words what it is a piece of.

    A graph of which no piece alone is outside has none, nor one of which the search found no time or was interrupted.
    """
    words, end = {}, time.monotonic() + SECONDS
    if graphs and sys.stderr.isatty():
        limit = f"{TRIES} compilations, {SECONDS:.0f} seconds in all"
        print(f"opassay watch: looking for the smallest piece of a graph outside; up to {limit}", file=sys.stderr)
    for name, call in graphs.items():
        with contextlib.suppress(NoProgram, KeyboardInterrupt, subprocess.TimeoutExpired):
            piece = PieceSearch(call, judge, seconds=end - time.monotonic()).find()
            if piece is not None:
                write_program(folder / name, piece, f"{call.name} ({call.origin.line})")
                words[name] = piece.about
    return words


def write_program(path: Path, piece: GraphPiece, about: str) -> None:
    """Write the program of a piece, with its large inputs beside it, and run it.

    Args:
        about: of which graph it is a piece.

    Raises:
        NoProgram: the program does not show the fault.
    """
    names, outlier = [f"x{i}" for i in range(len(piece.inputs))], piece.outlier
    call, place = ", ".join(names), f"[{outlier.number}][{', '.join(map(str, outlier.index)) or '...'}]"
    lines = (
        "with torch.no_grad():",
        f"    outputs = torch.compile(piece, fullgraph=True, dynamic=False)({call})",
        f"    wide = wide_piece(*(x.double() if x.is_floating_point() else x for x in ({call},)))",
        f'print(f"compiled {{float(outputs{place})!r}}, in float64 {{float(wide{place})!r}}, bound {outlier.bound!r}")',
    )
    script, functions = Script(_values_of(path, names, piece), lines), _functions_of(piece.graph)
    element = outlier.number, outlier.index, outlier.worst.exact, outlier.edges, outlier.output
    needed = f"{script.values} {functions}"
    imports = tuple(line for word, line in _IMPORTS.items() if word in needed)
    title = f"{outlier.output} is outside of its bound where torch.compile compiles it"
    whole, about = of_element(lambda: script, *element), f"{piece.about}, of {about}"
    text = assemble(Script(lines=functions, imports=imports), whole, title, about, torch.get_num_threads())
    path.write_text(text)
    ended = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False, timeout=_SECONDS)
    if ended.returncode != 1 or not ended.stdout:
        raise NoProgram(f"In a process of its own the piece is not outside: {ended.stderr.strip()[-200:]}")


def _functions_of(graph: torch.fx.GraphModule) -> tuple[str, ...]:
    """The lines of the piece as a function, and of the same in float64."""
    source = re.sub(r";  .*| : [\w.\[\]\", ]+(?= = )", "", graph.graph.python_code("self").src)
    start = source.index("def ")
    lines = re.sub(r"def forward\(self(, )?", "def piece(", source[start:]).rstrip().splitlines()
    wide = [re.sub(r"torch\.(bfloat16|float16|float32)\b", "torch.float64", line) for line in lines]
    return (*lines, "", "", wide[0].replace("def piece(", "def wide_piece("), *wide[1:], "")


def _values_of(path: Path, names: Sequence[str], piece: GraphPiece) -> dict[str, object]:
    """The inputs by name: as numbers, as bytes in files beside the program, or drawn."""
    if piece.seed is None:
        return {name: _in_program(path, name, x) for name, x in zip(names, piece.inputs, strict=True)}
    values: dict[str, object] = {"generator": _Expression(f"torch.Generator().manual_seed({piece.seed})")}
    for name, x in zip(names, piece.inputs, strict=True):
        shape, device = tuple(x.shape), str(x.device)
        values[name] = _Expression(f"torch.randn({shape}, generator=generator).to({device!r}, {x.dtype})")
    return values


def _in_program(path: Path, name: str, tensor: Tensor) -> object:
    if tensor.nbytes <= _IN_TEXT:
        return ProgramTensor(tensor, tensor)
    file = path.with_name(f"{path.stem}-{name}.raw")
    file.write_bytes(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    content = f"pathlib.Path(__file__).with_name({file.name!r}).read_bytes()"
    text = f"torch.frombuffer(bytearray({content}), dtype={tensor.dtype})"
    text += f".reshape({tuple(tensor.shape)}).to({str(tensor.device)!r})"
    dense = tensor.is_contiguous() and not tensor.storage_offset()
    return _Expression(text if dense else f"laid({text}, {tuple(tensor.stride())}, 0)")
