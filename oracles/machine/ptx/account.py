"""What kernels did that were launched in their own way: which freedoms they have, and what was wrong with them.

What this is for: such a kernel is launched in the midst of somebody's function, which may catch whatever a launch
raises. So a fault is entered here as well, and whoever called the function asks for it afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...verdicts.violation import Unsupported, Violation
from . import approximations, hardware
from .far import FarCall
from .hardware import APART, ENDS, NEAREST, Hardware


@dataclass(frozen=True)
class Variant:
    """One way in which a GPU may run somebody's kernels.

    Attributes:
        hardware: what the ISA leaves to it. configuration: which one a tuner takes, of those that it may take.
    """

    hardware: Hardware = NEAREST
    configuration: int = 0


@dataclass
class LaunchAccount:
    """The launches of this process, of one candidate.

    Attributes:
        launches: how many there were, by the name of the kernel.
        configurations: how many the tuner of a kernel has, by its name. choices: the last one that it took, in words.
        unfit: those that it left out, in words, and why, as Triton's own tuner does with them.
        unordered: kernels whose atomic sums of floats have no decided order.
        earlier: how often approximations were executed before `start`.
        fault: what was wrong since `begin`; the first one.
        launchers: classes and the names of their methods that launch, which torch.compile must not trace into.
        far: the call whose operands are beyond 2^31 elements; None for any other.
        variant: that runs now. words: about the variant of the last launch or, if there is one, of the fault.
    """

    launches: dict[str, int] = field(default_factory=dict)
    configurations: dict[str, int] = field(default_factory=dict)
    choices: dict[str, str] = field(default_factory=dict)
    unfit: dict[str, dict[str, str]] = field(default_factory=dict)
    unordered: set[str] = field(default_factory=set)
    earlier: Counter[str] = field(default_factory=Counter)
    fault: Violation | Unsupported | None = None
    launchers: set[tuple[type, str]] = field(default_factory=set)
    variant: Variant = Variant()
    words: str = ""
    far: FarCall | None = None

    def start(self) -> None:
        """Begin with another candidate."""
        self.launches, self.configurations, self.unordered = {}, {}, set()
        self.choices, self.unfit = {}, {}
        self.earlier = Counter(approximations.executed)

    def begin(self) -> None:
        """Forget the fault, which was asked for."""
        self.fault = None

    @contextmanager
    def raise_fault(self) -> Iterator[None]:
        """Raise a fault of the launches in the block at its end, whatever the block has made of it."""
        self.begin()
        yield
        if self.fault is not None:
            raise self.fault

    def enter(self, name: str, fault: Violation | Unsupported | None = None) -> None:
        """Note a launch of a kernel, and what was wrong with it."""
        self.launches[name] = self.launches.get(name, 0) + (fault is None)
        if self.fault is None:
            self.fault, self.words = fault, self._words

    @property
    def variants(self) -> list[Variant]:
        """All that are to be tried; the first one is the usual one."""
        executed = approximations.executed - self.earlier
        ends = [*ENDS] if executed else []
        ends += [hardware.TRUNCATING] if executed[approximations.MMA] else []
        count = self._count
        attempts = [Variant(end, i % count) for i, end in enumerate((NEAREST, *ends, APART))]
        return attempts + [Variant(NEAREST, i) for i in range(1, count)]

    @property
    def _count(self) -> int:
        """How many configurations the tuner with the most of them has."""
        return max(self.configurations.values(), default=1)

    @property
    def tale(self) -> list[str]:
        """What a report says of the launches, a line each."""
        lines = [f"{name}: {count} launches without a fault" for name, count in self.launches.items()]
        lines += [f"{name}: atomic sums of floats, whose order is not decided" for name in sorted(self.unordered)]
        lines += [f"{name}: {count} configurations" for name, count in self.configurations.items()]
        unfit = [(name, *row) for name, rows in self.unfit.items() for row in rows.items()]
        return lines + [f"{name}: left out {configuration}: {why}" for name, configuration, why in unfit]

    @property
    def _words(self) -> str:
        """About the variant that runs, with the configurations that tuners take."""
        return "; ".join([str(self.variant.hardware), *map("{0[0]} with {0[1]}".format, self.choices.items())])


ACCOUNT = LaunchAccount()


@contextmanager
def on_variant(which: int | Variant) -> Iterator[None]:
    """Within the block, kernels run as a variant says, or one of all of them; numbers beyond the last begin again."""
    before, variants = ACCOUNT.variant, ACCOUNT.variants
    ACCOUNT.variant = variants[which % len(variants)] if isinstance(which, int) else which
    try:
        with hardware.on(ACCOUNT.variant.hardware):
            yield
    finally:
        ACCOUNT.variant = before
