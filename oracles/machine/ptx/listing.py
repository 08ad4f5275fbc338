"""The text of a PTX module as data: an entry with its parameters, registers, shared variables, and basic blocks.

Source: NVIDIA, PTX ISA 9.1, chapters 4 (syntax) and 5 (state spaces, types and variables). The text of Triton and of
LLVM is read, not every text that the ISA allows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from .formats import WIDTHS

_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(")
_KIND = re.compile(r"\.(b8|[busf](?:8|16|32|64))\b")
_PARAMETER = re.compile(r"(\w+)\s*(?:\[(\d+)\])?\s*$")
_REGISTERS = re.compile(r"^\.reg\s+\.(\w+)\s+(.*)$")
_RANGE = re.compile(r"([%\w$.]+)<(\d+)>")
_SHARED = re.compile(r"\.shared\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$%.]+)(?:\[(\d*)\])?", re.DOTALL)
_STOP = re.compile(r"[;{}\n]|:(?!:)")
_LABEL = re.compile(r"\s*[$\w]+\s*")
_PREDICATE = re.compile(r"^@(!?)([%\w$.]+)\s+")
_NAME = re.compile(r"[%\w$.]+")
#: Behind these a block ends: lanes part there, or wait for each other.
_ENDING = frozenset({"bra", "ret", "exit", "bar", "barrier"})

Operand = str | tuple[str, ...]


@dataclass(frozen=True)
class Instruction:
    """`@!%p1 add.rn.f32 %r1, %r2, %r3;`

    Attributes:
        name, modifiers: "add" and ("rn", "f32"). operands: as text; vectors as tuples.
        predicate: the register that guards it, or "". negated: whether that must be false. line: of the text.
    """

    name: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    predicate: str = ""
    negated: bool = False
    line: int = 0

    @property
    def opcode(self) -> str:
        return ".".join((self.name, *self.modifiers))

    @property
    def kind(self) -> str:
        """The last modifier: the type of the operands."""
        return self.modifiers[-1] if self.modifiers else ""

    def __str__(self) -> str:
        return f"line {self.line}, {self.opcode}"


@dataclass
class Listing:
    """A kernel.

    Attributes:
        name: of the entry. parameters: name -> bytes, in order. registers: name -> bytes; 1 for predicates.
        shared: variable -> its first byte in the block's shared memory. size: bytes of all of them.
        blocks: instructions without a jump into or out of their middle. labels: name -> number of its block.
    """

    name: str
    parameters: dict[str, int] = field(default_factory=dict)
    registers: dict[str, int] = field(default_factory=dict)
    shared: dict[str, int] = field(default_factory=dict)
    size: int = 0
    blocks: list[list[Instruction]] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)

    def declare_shared(self, declaration: str) -> None:
        """Give a variable of shared memory its place."""
        match = _SHARED.search(declaration)
        if match is None or match[3] in self.shared:
            return
        width = WIDTHS[match[2]]
        align = int(match[1] or width)
        place = -(-self.size // align) * align
        self.shared[match[3]] = place
        # "[]" is dynamic: it begins behind all others, and the launch says how long it is.
        self.size = place + (0 if match[4] == "" else width * int(match[4] or 1))


def read_entry(text: str) -> Listing:
    """The first entry of a module.

    Raises:
        ValueError: the module has no entry.
    """
    text = _without_comments(text)
    match = _ENTRY.search(text)
    if match is None:
        raise ValueError("the module has no .entry")
    entry = Listing(match[1])
    for declaration in re.findall(r"\.shared\s[^;{]*;", text[: match.start()]):
        entry.declare_shared(declaration)
    close = text.index(")", match.end())
    for piece in text[match.end() : close].split(","):
        kind, name = _KIND.findall(piece), _PARAMETER.search(piece)
        if kind and name:
            entry.parameters[name[1]] = WIDTHS[kind[0]] * int(name[2] or 1)
    start = text.index("{", close)
    _Body(entry, text.count("\n", 0, start) + 1).read(text[start + 1 :])
    return entry


def _without_comments(text: str) -> str:
    text = re.sub(r"/\*.*?\*/", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


class _Body:
    """Reads the body of an entry: statements, one after the other, in nested scopes of registers."""

    def __init__(self, entry: Listing, line: int) -> None:
        self._entry, self._line = entry, line
        self._scopes: list[dict[str, str]] = [{}]
        entry.blocks.append([])

    def read(self, text: str) -> None:
        """Read the text behind the first brace, up to the brace that closes it."""
        statement, position = "", 0
        for stop in _STOP.finditer(text):
            statement += text[position : stop.start()]
            position, sign = stop.end(), stop[0]
            if sign == "\n":
                self._line += 1
                # Lines of line tables end without a semicolon.
                statement = "" if statement.lstrip().startswith((".loc", ".file")) else statement + " "
            elif sign in "{}" and statement.strip():
                statement += sign  # of a vector
            elif sign == "{":
                self._scopes.append({})
            elif sign == "}":
                self._scopes.pop()
                if not self._scopes:
                    break
            elif sign == ":" and not _LABEL.fullmatch(statement):
                statement += sign
            else:
                self._take(" ".join(statement.split()), sign)
                statement = ""
        if not self._entry.blocks[-1]:
            self._entry.blocks.pop()

    def _take(self, statement: str, sign: str) -> None:
        """A label or a whole statement."""
        registers = _REGISTERS.match(statement)
        if sign == ":":
            self._open_block()
            self._entry.labels[statement] = len(self._entry.blocks) - 1
        elif registers:
            for name in _expanded(registers[2]):
                self._entry.registers[self._local(name)] = WIDTHS[registers[1]]
        elif statement.startswith("."):
            self._entry.declare_shared(statement)
        elif statement:
            instruction = _instruction(statement, self._line, self._renaming())
            self._entry.blocks[-1].append(instruction)
            if instruction.name in _ENDING:
                self._open_block()

    def _open_block(self) -> None:
        if self._entry.blocks[-1]:
            self._entry.blocks.append([])

    def _local(self, name: str) -> str:
        """The name of a register that is declared here; in an inner scope it is one of its own."""
        if len(self._scopes) > 1:
            self._scopes[-1][name] = f"{name}@{len(self._entry.registers)}"
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
