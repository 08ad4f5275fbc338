"""A source of CUDA C++ in two: its host code for g++, and its kernels for NVRTC, as nvcc parts them.

In host code each kernel becomes a function of the same parameters that enters the launch (`opassay::enter`), as the
stubs of nvcc do; and `kernel<<<grid, block>>>(x)` becomes a configuration and a call: templates, conversions and
overloads are then those of C++. What is hard here is to find where a definition ends without a parser of C++: comments
and strings are blanked, and brackets are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: Comments, raw strings, strings and characters.
_NO_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<end>[^(\s]*)\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL
)
#: Headers of which host code is given what it needs: those of CUDA, and torch's of everything, which take a minute.
_GIVEN = re.compile(
    r"cuda|cooperative_groups|cub/|thrust/|mma\.h|device_launch|nvToolsExt|ATen/cuda/|c10/cuda/|curand|nvrtc"
    r"|torch/(extension|torch|all|types|python)\.h"
)
_HOST_WORDS = re.compile(r"\b(torch|at|c10|pybind11|py)::|\bstd::(vector|string|tuple|optional|unordered_map|map)\b")
_PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}


class SplitError(Exception):
    """A source that cannot be parted; the text says why."""


@dataclass(frozen=True)
class SplitSource:
    """The parts of a source: what g++ compiles and what NVRTC does, and the names of its kernels."""

    host: str
    device: str
    kernels: tuple[str, ...]


def split_source(source: str) -> SplitSource:
    """Part a source.

    Raises:
        SplitError: a brace has no end, or a parameter of a kernel no name.
    """
    host, device, kernels = list[str](), list[str](), list[str]()
    _split(source, 1, (), host, device, kernels)
    return SplitSource("\n".join(host), "\n".join(device), tuple(kernels))


def _split(
    source: str, first: int, spaces: tuple[str, ...], host: list[str], device: list[str], kernels: list[str]
) -> None:  # fmt: skip
    """Part what stands in some namespaces, from a line on."""
    for start, text, code in _items(source):
        head, line = code.partition("{")[0], first + source.count("\n", 0, start)
        host.append(f"#line {line}")
        device.append(f"#line {line}")
        block = re.match(r'\s*(inline\s+)?namespace\s*([\w:]*)\s*$|\s*extern\s+"C"\s*$', text[: len(head)])
        if code.lstrip().startswith("#"):
            _part_directive(text, host, device)
        elif block and "{" in code:
            opening = text[: len(head) + 1]
            host.append(opening)
            device.append(opening)
            inner = text[len(head) + 1 : text.rindex("}")]
            inside = line + opening.count("\n")
            _split(inner, inside, (*spaces, block[2]) if block[2] else spaces, host, device, kernels)
            host.append("}")
            device.append("}")
        elif re.search(r"\b__global__\b", head):
            _part_kernel(text, code, spaces, host, device, kernels)
        else:
            goes = _sides(text, code)
            if "host" in goes:
                host.append(_replace_launches(text, code))
            if "device" in goes:
                device.append(text)


def _part_directive(text: str, host: list[str], device: list[str]) -> None:
    include = re.match(r'\s*#\s*include\s*[<"]([^>"]+)', text)
    device.append(text)
    if include is None or not _GIVEN.match(include[1]):
        host.append(text)


def _part_kernel(
    text: str, code: str, spaces: tuple[str, ...], host: list[str], device: list[str], kernels: list[str]
) -> None:  # fmt: skip
    device.append(re.sub(r"\bstatic\b", "", text, count=1) if "{" in code else text)
    if "{" not in code:
        if not re.match(r"\s*template\s+[^<\s]", code):  # An instance is made where it is launched.
            host.append(_without_words(text, code))
        return
    head = text[: code.index("{")]
    name, stub = _stub_of(_without_words(head, code[: len(head)]), spaces)
    kernels.append(name)
    host.append(stub)


def _without_words(text: str, code: str) -> str:
    """The head of a kernel without the words that are nvcc's."""
    bounds = re.search(r"\b__launch_bounds__\s*(?=\()", code)
    if bounds is not None:
        text = text[: bounds.start()] + text[_end_of(code, bounds.end()) :]
    return re.sub(r"\b(__global__|static|__forceinline__)\b", "", text)


def _stub_of(head: str, spaces: tuple[str, ...]) -> tuple[str, str]:
    """The name of a kernel, and the function that enters its launch."""
    code = _blank(head)
    start = _end_of(code, code.index("<")) if re.match(r"\s*template\b", code) else 0
    opening = code.index("(", start)
    words = re.findall(r"\w+", code[start:opening])
    templates = _names(head[code.index("<") + 1 : start - 1]) if start else []
    parameters = _names(head[opening + 1 : _end_of(code, opening) - 1])
    name = "::".join((*spaces, words[-1]))
    texts = [f"opassay::text<{each}>()" for each in templates]
    values = ", ".join(f"opassay::value({each})" for each in parameters)
    entered = ", ".join([f'"{name}"', f"{{{', '.join(texts)}}}", f"{{{values}}}"])
    return name, f"{head} {{ opassay::enter({entered}); }}"


def _names(listed: str) -> list[str]:
    """The names of parameters, each the last word before a default or an array's size."""
    names = []
    for each in _between_commas(listed):
        word = re.search(r"(\w+)\s*(\[[^\]]*\]\s*)*$", each.partition("=")[0])
        if word is None:
            raise SplitError(f"a parameter has no name: {each.strip()!r}")
        names.append(word[1])
    return names


def _between_commas(listed: str) -> Iterator[str]:
    """What commas part, outside of brackets."""
    depth, last = 0, 0
    for at, letter in enumerate(listed):
        depth += (letter in "([{<") - (letter in ")]}>")
        if letter == "," and not depth:
            yield listed[last:at]
            last = at + 1
    if listed[last:].strip():
        yield listed[last:]


def _sides(text: str, code: str) -> tuple[str, ...]:
    """For which compilers a definition or declaration is that is no kernel."""
    head = code.partition("{")[0]
    if re.search(r"\b__(device|constant|shared)__\b", head):
        return ("host", "device") if "__host__" in head else ("device",)
    if re.match(r"\s*(template\s*<.*>\s*)?(struct|class|union|enum|using|typedef|static_assert)\b", head, re.DOTALL):
        return ("host",) if _HOST_WORDS.search(text) else ("host", "device")
    if "constexpr" in head:
        return ("host", "device")
    is_function = _is_function(head) if "{" in code else bool(re.search(r"\)\s*(const)?\s*;\s*$", code))
    return ("host",) if is_function or _HOST_WORDS.search(text) else ("host", "device")


def _replace_launches(text: str, code: str) -> str:
    """Host code with a configuration and a call in the place of each launch."""
    done, last = "", 0
    for launch in re.finditer(r"<<<", code):
        start, end = _callee(code, launch.start()), _end_of_configuration(code, launch.end())
        sizes = text[launch.end() : end]
        done += f"{text[last:start]}opassay::configure({sizes}), {text[start : launch.start()]}"
        last = end + 3
    return done + text[last:]


def _callee(code: str, end: int) -> int:
    """Where the name of a launched kernel begins, whose arguments of a template may stand behind it."""
    at = len(code[:end].rstrip())
    if code[at - 1] == ">":
        depth = 1
        while depth:
            at -= 1
            depth += (code[at - 1] == ">") - (code[at - 1] == "<")
        at = len(code[: at - 1].rstrip())
    word = re.search(r"[\w:]+$", code[:at])
    if word is None:
        raise SplitError(f"a launch of no name: {code[max(end - 40, 0) : end].strip()!r}")
    return word.start()


def _end_of_configuration(code: str, start: int) -> int:
    at = start
    while not code.startswith(">>>", at):
        at = _end_of(code, at) if code[at] in "([{" else at + 1
        if at >= len(code):
            raise SplitError("a launch: <<< has no >>>")
    return at


def _items(source: str) -> Iterator[tuple[int, str, str]]:
    """The directives, declarations and definitions of a source: the place, the text, and the text without strings."""
    code, at = _blank(source), 0
    while at < len(code):
        if code[at].isspace() or code[at] == ";":
            at += 1
            continue
        if code[at] == "#":
            line = re.compile(r"(?:[^\n\\]|\\.)*", re.DOTALL).match(source, at)
            end = len(source) if line is None else line.end()
        else:
            end = _end_of_item(code, at)
        yield at, source[at:end], code[at:end]
        at = end


def _end_of_item(code: str, start: int) -> int:
    at = start
    while at < len(code):
        if code[at] == ";":
            return at + 1
        if code[at] == "{":
            end, head = _end_of(code, at), code[start:at]
            if _is_function(head) or re.match(r'\s*(inline\s+)?namespace\b|\s*extern\s+"?\s*"?\s*$', head):
                return end
            at = end
        else:
            at = _end_of(code, at) if code[at] in "([" else at + 1
    return len(code)


def _is_function(head: str) -> bool:
    """Whether a function's body stands behind a head; a variable is given its value by `=`."""
    if re.match(r"\s*template\s*<", head):
        head = head[_end_of(head, head.index("<")) :]
    plain = re.sub(r"\b(const|noexcept|override|final)\b|->[^(){}]*$", "", head).rstrip()
    return plain.endswith(")") and not re.search(r"(?<![=!<>])=(?!=)", re.sub(r"\([^()]*\)", "", plain))


def _end_of(code: str, start: int) -> int:
    """Behind the bracket that closes the one at `start`."""
    opening, closing, depth = code[start], _PAIRS[code[start]], 0
    for at in range(start, len(code)):
        depth += (code[at] == opening) - (code[at] == closing)
        if not depth:
            return at + 1
    raise SplitError(f"{opening} has no {closing}: {code[start : start + 40].strip()!r}")


def _blank(source: str) -> str:
    """The source with spaces in the place of comments and of what stands in quotes."""
    return _NO_CODE.sub(lambda text: re.sub(r"[^\n]", " ", text[0]), source)
