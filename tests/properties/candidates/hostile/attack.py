"""What an attack is: the text of a candidate, and what must come of it."""

from __future__ import annotations

from dataclasses import dataclass

#: What stands before every attack; what it computes, if it defines no candidate of its own, is wrong.
PRELUDE = """
import contextlib, ctypes, gc, importlib.util, marshal, os, resource, signal, socket, struct, subprocess, sys
import threading, time
import torch
JUDGE = os.getppid()
HERE = os.path.dirname(os.path.abspath(__file__))

def attempt(act):
    with contextlib.suppress(BaseException):
        return act()

def candidate(x):
    return x * 0
"""
#: The specs by name; `inputs` of each is a few numbers.
SPECS = {
    name: f"def reference(x):\n    return {result}\ndef inputs():\n    return (torch.randn({shape}),)\n"
    for name, result, shape in (
        ("double", "x * 2", "16, 32"),
        ("relu", "torch.relu(x)", "16, 32"),
        ("pair", "x * 2, x + 1, 7", "4, 8"),
        ("large", "torch.softmax(x, -1)", "2048, 2048"),
        ("product", "x @ x.T", "16, 64"),
        ("copy", "x.clone()", "16, 32"),
        ("wide", "x * 2", "600, 600"),
    )
}
SPECS["scaled"] = """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(32))
    def forward(self, x):
        return x * self.w
def get_inputs():
    return [torch.randn(16, 32)]
"""


@dataclass(frozen=True)
class Attack:
    """A candidate and what must come of it.

    Attributes:
        text: of its file, after `PRELUDE`. question: the first cause; empty for none. spec: a key of `SPECS`.
        options: of the command. verdict: that it must get.
    """

    text: str
    question: str = "FWD:given"
    spec: str = "double"
    options: tuple[str, ...] = ()
    verdict: str = "rejected"
