"""The text of a PTX module as data: an entry with its parameters, registers, shared variables, and basic blocks.

Source: NVIDIA, PTX ISA 9.1, chapters 4 (syntax) and 5 (state spaces, types and variables). The text of Triton and of
LLVM is read, not every text that the ISA allows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from .formats import WIDTHS, read_number
from .plain_text import simplify

_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(")
_BODY = re.compile(r"\.(?:entry|func)\b[^;{]*\{")
_FUNCTION = re.compile(r"\.func\s*(\([^)]*\))?\s*([\w$]+)\s*(\([^)]*\))?[^(]*\{$")
_BRACE = re.compile("[{}]")
_FORMAL = re.compile(r"([\w$%.]+)(?:\[\d*\])?\s*[,)]")
_KIND = re.compile(r"\.(b8|[busf](?:8|16|32|64))\b")
_PARAMETER = re.compile(r"(\w+)\s*(?:\[(\d+)\])?\s*$")
_REGISTERS = re.compile(r"^\.reg\s*\.(\w+)\s+(.*)$")
_RANGE = re.compile(r"([%\w$.]+)<(\d+)>")
_VARIABLE = re.compile(
    r"\.(shared|local|global|const|param)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$%.@]+)(?:\[(\d*)\])?(?:\s*=\s*(.*))?",
    re.DOTALL,
)
_CLUSTER = re.compile(r"\.reqnctapercluster\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]*)"', re.MULTILINE)
_LOCATION = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+\d+(?:.*inlined_at\s+(\d+)\s+(\d+))?")
_OUTSIDE = re.compile(r"^[^\S\n]*(?:\.(?:visible|extern|weak)\s+)*\.(?:shared|global|const)\s[^;]*;", re.MULTILINE)
_STOP = re.compile(r"[;{}\n]|:(?!:)")
_LABEL = re.compile(r"\s*[$\w]+\s*")
_PREDICATE = re.compile(r"^@(!?)([%\w$.]+)\s+")
_NAME = re.compile(r"[%\w$.@]+")
#: Behind these a block ends: lanes part there, or wait for each other.
_ENDING = frozenset({"bra", "ret", "exit", "bar", "barrier"})

Operand = str | tuple[str, ...]


@dataclass(frozen=True)
class Instruction:
    """`@!%p1 add.rn.f32 %r1, %r2, %r3;`

    Attributes:
        name, modifiers: "add" and ("rn", "f32"). operands: as text; vectors as tuples.
        predicate: the register that guards it, or "". negated: whether that must be false. line: of the text.
        source: file and line that it was compiled from, "" where the text does not say.
    """

    name: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    predicate: str = ""
    negated: bool = False
    line: int = 0
    source: str = ""

    @property
    def opcode(self) -> str:
        return ".".join((self.name, *self.modifiers))

    @property
    def kind(self) -> str:
        """The last modifier: the type of the operands."""
        return self.modifiers[-1] if self.modifiers else ""

    def __str__(self) -> str:
        return f"{f'{self.source}, ' if self.source else ''}line {self.line} of the PTX, {self.opcode}"


@dataclass
class Listing:
    """A kernel.

    Attributes:
        name: of the entry. parameters: name -> bytes, in order. kinds: name -> type; "" of a structure.
        registers: name -> bytes; 1 for predicates.
        places: variable of shared or local memory -> its first byte there.
        sizes: bytes of all of them, by space. constants: variable of the module -> its bytes.
        blocks: instructions without a jump into or out of their middle. labels: name -> number of its block.
        dynamic: array of dynamic shared memory -> what its place is a multiple of.
        cluster: the blocks of a cluster along each axis that it has to be launched with; empty for any.
    """

    name: str
    parameters: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    registers: dict[str, int] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=lambda: {"shared": 0, "local": 0})
    constants: dict[str, bytes] = field(default_factory=dict)
    blocks: list[list[Instruction]] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    dynamic: dict[str, int] = field(default_factory=dict)
    cluster: tuple[int, ...] = ()

    def parameter_place(self, name: str) -> int:
        """Where a parameter begins among all of them, for those who take its address."""
        place = 0
        for other, width in self.parameters.items():
            if other == name:
                break
            place += -(-width // 128) * 128
        return place

    def declare(self, declaration: str) -> None:
        """Record the offset of a variable in shared or local memory, or the bytes of one of the module.

        What a function gets and gives (.param) is in local memory.
        """
        match = _VARIABLE.search(declaration)
        if match is None or match[4] in self.places:
            return
        space, width, name = match[1].replace("param", "local"), WIDTHS[match[3]], match[4]
        if space in ("global", "const"):
            self.constants[name] = _initial(match[6] or "", match[3], int(match[5] or 1))
            return
        align = int(match[2] or width)
        if match[5] == "":  # dynamic: it begins behind all others, and the launch gives its size
            self.dynamic[name] = align
            return
        place = -(-self.sizes[space] // align) * align
        self.places[name] = place
        self.sizes[space] = place + width * int(match[5] or 1)

    def place_dynamic(self) -> None:
        """Give dynamic shared memory, of whatever names, its place."""
        align = max(self.dynamic.values(), default=1)
        self.sizes["shared"] = -(-self.sizes["shared"] // align) * align
        self.places |= dict.fromkeys(self.dynamic, self.sizes["shared"])


def _initial(text: str, kind: str, count: int) -> bytes:
    """The bytes of a variable whose initial values are "{1, 2}", say; zeros where there are no values."""
    numbers = [read_number(each.strip(), kind).tobytes() for each in text.strip("{} ;").split(",") if each.strip()]
    return b"".join(numbers).ljust(WIDTHS[kind] * count, b"\0")


@dataclass(frozen=True)
class _Function:
    """A function of the module: what it gives and gets, its text behind the first brace, and the line of that."""

    formals: tuple[str, ...]
    text: str
    line: int


def read_entry(text: str, name: str = "") -> Listing:
    """An entry of a module, by its name; by default the first one. Functions that it calls are read in their places.

    Raises:
        ValueError: the module has no such entry.
    """
    text = simplify(text)
    files = {number: path.rpartition("/")[2] for number, path in _FILE.findall(text)}
    head = next((each for each in _ENTRY.finditer(text) if name in ("", each[1])), None)
    if head is None:
        raise ValueError(f"the module has no .entry {name}")
    entry = Listing(head[1])
    functions, outside = _split(text)
    for variable in _OUTSIDE.findall(outside):
        entry.declare(variable)
    close = text.index(")", head.end())
    for piece in text[head.end() : close].split(","):
        kind, parameter = _KIND.findall(piece), _PARAMETER.search(piece)
        if kind and parameter:
            entry.parameters[parameter[1]] = WIDTHS[kind[0]] * int(parameter[2] or 1)
            entry.kinds[parameter[1]] = "" if parameter[2] else kind[0]
    start = text.index("{", close)
    clusters = _CLUSTER.search(text, close, start)
    entry.cluster = (*(int(each or 1) for each in clusters.groups()),) if clusters else ()
    body = _Body(entry, text.count("\n", 0, start) + 1, files, functions)
    body.read(text[start + 1 :])
    body.finish()
    entry.place_dynamic()
    return entry


def _split(text: str) -> tuple[dict[str, _Function], str]:
    """The functions of a module by their names, and its text without functions and entries."""
    functions, outside, end = {}, "", 0
    for head in _BODY.finditer(text):
        if head.start() < end:
            continue
        outside += text[end : head.start()]
        depth = 1
        for brace in _BRACE.finditer(text, head.end()):
            depth, end = depth + (1 if brace[0] == "{" else -1), brace.end()
            if not depth:
                break
        function = _FUNCTION.match(head[0])
        if function:
            formals = tuple(_FORMAL.findall(f"{function[1] or ''}{function[3] or ''}"))
            functions[function[2]] = _Function(formals, text[head.end() : end], text.count("\n", 0, head.end()) + 1)
    return functions, outside + text[end:]


class _Body:
    """Reads the body of an entry: statements, one after the other, in nested scopes of registers, labels, variables.

    A call reads the function's body in its place, in a scope of its own in which the names of what it gets and gives
    are those that the call has. So threads that part there come together again as anywhere else.
    """

    def __init__(self, entry: Listing, line: int, files: Mapping[str, str], functions: Mapping[str, _Function]) -> None:
        self._entry, self._line, self._files, self._source = entry, line, files, ""
        self._functions, self._returns = functions, [("", "")]
        self._scopes: list[dict[str, str]] = [{}]
        #: Where local memory began to be used by each scope, and how much of it was ever used.
        self._tops, self._most = [0], 0
        self._jumps: list[tuple[int, int, tuple[dict[str, str], ...]]] = []
        self._count = 0
        entry.blocks.append([])

    def read(self, text: str) -> None:
        """Read the text behind the first brace, up to the brace that closes it."""
        statement, position, outer = "", 0, len(self._scopes)
        for stop in _STOP.finditer(text):
            statement += text[position : stop.start()]
            position, sign = stop.end(), stop[0]
            if sign == "\n":
                self._line += 1
                # Lines of line tables end without a semicolon.
                statement = "" if self._take_location(statement) else statement + " "
            elif sign in "{}" and statement.strip():
                statement += sign  # of a vector
            elif sign == "{":
                self._open_scope({})
            elif sign == "}":
                self._close_scope()
                if len(self._scopes) < outer:
                    break
            elif sign == ":" and not _LABEL.fullmatch(statement):
                statement += sign
            else:
                self._take(" ".join(statement.split()), sign)
                statement = ""

    def finish(self) -> None:
        """Have jumps name the labels of their scopes, which may stand behind them."""
        for block, number, scopes in self._jumps:
            jump = self._entry.blocks[block][number]
            label = str(jump.operands[0])
            known = next((scope[label] for scope in reversed(scopes) if label in scope), label)
            self._entry.blocks[block][number] = replace(jump, operands=(known,))
        self._entry.sizes["local"] = self._most
        if not self._entry.blocks[-1]:
            self._entry.blocks.pop()

    def _open_scope(self, names: dict[str, str]) -> None:
        self._scopes.append(names)
        self._tops.append(self._entry.sizes["local"])

    def _close_scope(self) -> None:
        self._scopes.pop()
        self._most = max(self._most, self._entry.sizes["local"])
        self._entry.sizes["local"] = self._tops.pop() if self._scopes else 0

    def _take(self, statement: str, sign: str) -> None:
        """A label or a whole statement."""
        if sign == ":":
            self._mark(self._local(statement))
        elif registers := _REGISTERS.match(statement):
            self._declare_registers(registers[1], registers[2])
        elif statement.startswith("."):
            variable = _VARIABLE.search(statement)
            if variable and variable[1] in ("local", "param"):
                start, end = variable.span(4)
                statement = f"{statement[:start]}{self._local(variable[4])}{statement[end:]}"
            self._entry.declare(statement)
        elif statement:
            instruction = replace(_instruction(statement, self._line, self._renaming()), source=self._source)
            if instruction.name == "call":
                self._call(instruction)
            else:
                self._append(self._in_place(instruction))

    def _declare_registers(self, kind: str, names: str) -> None:
        """Declare registers; of a vector its parts, for which its name stands."""
        if kind in ("v2", "v4"):
            of_part, _, names = names.lstrip(".").partition(" ")
            for name in _expanded(names):
                own = [self._local(f"{name}.{letter}") for letter in "xyzw"[: int(kind[1])]]
                self._entry.registers |= dict.fromkeys(own, WIDTHS[of_part])
                self._scopes[-1][name] = f"{{{', '.join(own)}}}"
        else:
            self._entry.registers |= {self._local(name): WIDTHS[kind] for name in _expanded(names)}

    def _append(self, instruction: Instruction) -> None:
        block = self._entry.blocks[-1]
        block.append(instruction)
        if instruction.name == "bra":
            self._jumps.append((len(self._entry.blocks) - 1, len(block) - 1, tuple(self._scopes)))
        if instruction.name in _ENDING:
            self._open_block()

    def _in_place(self, instruction: Instruction) -> Instruction:
        """An instruction of a function as it is in the place of a call."""
        function, end = self._returns[-1]
        if function and instruction.name == "ret":
            return replace(instruction, name="bra", operands=(end,))
        place = instruction.operands[0 if instruction.name == "st" else -1] if instruction.operands else ""
        name = _NAME.search(place) if isinstance(place, str) else None
        if instruction.modifiers[:1] == ("param",) and name and name[0] in self._entry.places:
            return replace(instruction, modifiers=("local", *instruction.modifiers[1:]))
        return instruction

    def _call(self, call: Instruction) -> None:
        """A call: the function's body; as an instruction where the module has none, or it is called within itself."""
        names = [operand for operand in call.operands if isinstance(operand, str)]
        callee = next((name for name in names if not name.startswith("(")), "")
        actual = [each.strip() for name in names if name.startswith("(") for each in name[1:-1].split(",")]
        actual = [each for each in actual if each]
        function = self._functions.get(callee)
        if function is None or callee in (name for name, _ in self._returns) or len(actual) != len(function.formals):
            self._append(replace(call, operands=(callee, *actual)))
            return
        self._count += 1
        end = f"{callee}@{self._count}"
        if call.predicate:
            self._append(replace(call, name="bra", modifiers=(), operands=(end,), negated=not call.negated))
        outer = self._scopes, self._line, self._source
        self._scopes, self._line = [{}], function.line
        self._tops.append(self._entry.sizes["local"])
        self._scopes.append(dict(zip(function.formals, actual, strict=True)))
        self._returns.append((callee, end))
        self._open_block()
        self.read(function.text)
        self._returns.pop()
        self._scopes, self._line, self._source = outer
        self._mark(end)

    def _mark(self, label: str) -> None:
        """Begin a block that a label names."""
        self._open_block()
        self._entry.labels[label] = len(self._entry.blocks) - 1

    def _take_location(self, statement: str) -> bool:
        """Note where the next instructions come from, where a line says so; whether it is one of a line table."""
        match = _LOCATION.match(statement.strip())
        if match is not None:
            file, line = (match[3], match[4]) if match[3] else (match[1], match[2])
            self._source = f"{self._files[file]}:{line}" if file in self._files else ""
        return statement.lstrip().startswith((".loc", ".file"))

    def _open_block(self) -> None:
        if self._entry.blocks[-1]:
            self._entry.blocks.append([])

    def _local(self, name: str) -> str:
        """The name of what is declared here; in an inner scope it is one of its own."""
        if len(self._scopes) > 1:
            self._count += 1
            self._scopes[-1][name] = f"{name}@{self._count}"
            return self._scopes[-1][name]
        return name

    def _renaming(self) -> Mapping[str, str]:
        table: dict[str, str] = {}
        for scope in self._scopes:
            table |= scope
        return table


def _expanded(names: str) -> Iterator[str]:
    """The names in "%r<3>, %q": "%r0", "%r1", "%r2" and "%q"."""
    for name in names.split(","):
        many = _RANGE.fullmatch(name.strip())
        yield from (f"{many[1]}{number}" for number in range(int(many[2]))) if many else (name.strip(),)


def _instruction(statement: str, line: int, table: Mapping[str, str]) -> Instruction:
    guard = _PREDICATE.match(statement)
    head, _, rest = statement[guard.end() if guard else 0 :].partition(" ")
    name, *modifiers = head.split(".")
    if table:
        rest = _NAME.sub(lambda match: table.get(match[0], match[0]), rest)
    predicate = table.get(guard[2], guard[2]) if guard else ""
    return Instruction(name, tuple(modifiers), _operands(rest), predicate, bool(guard and guard[1]), line)


def _operands(text: str) -> tuple[Operand, ...]:
    """ "{%r1, %r2}, [%rd1+4], 3" as (("%r1", "%r2"), "[%rd1+4]", "3")."""
    operands: list[Operand] = []
    depth = start = 0
    for position, letter in enumerate(text + ","):
        depth += (letter in "{[(") - (letter in "}])")
        if letter == "," and depth == 0:
            part = text[start:position].strip()
            start = position + 1
            if part:
                operands.append(tuple(x.strip() for x in part[1:-1].split(",")) if part[0] == "{" else part)
    return tuple(operands)
