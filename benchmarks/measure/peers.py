"""What a rehearsal is compared with: other ways to see, or to stand in for, every operator of a program.

Each peer is a name, a way in, and the device its tensors are made on. `EMPTY` is the mode as its documentation shows it
and as anyone would write it: the measure of what seeing an operator costs at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._debug_mode import DebugMode
from torch.utils._python_dispatch import TorchDispatchMode

import wherry


@dataclass(frozen=True, slots=True)
class Peer:
    """One way to run a program."""

    name: str
    enter: Callable[[], AbstractContextManager[object]]
    device: str = "cpu"
    computes: bool = True  # False: its tensors hold no values


class EmptyMode(TorchDispatchMode):
    """Sees every operator and changes nothing."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class LeanMode(TorchDispatchMode):
    """The same without the wrapper that keeps torch.compile out, which a mode gets when its class is defined.

    Source: TorchDispatchMode.__init_subclass__, torch 2.13. Where the class method is not known, it changes nothing.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class EmptyFunctionMode(TorchFunctionMode):
    """Sees every public function, not the operators below, nor backward."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


PLAIN = Peer("plain CPU", contextlib.nullcontext)
EMPTY = Peer("empty TorchDispatchMode", EmptyMode)
LEAN = Peer("lean empty TorchDispatchMode", LeanMode)
FUNCTION = Peer("empty TorchFunctionMode", EmptyFunctionMode)
DEBUG = Peer("DebugMode", DebugMode)
FAKE = Peer("FakeTensorMode", FakeTensorMode, computes=False)
REHEARSAL = Peer("rehearsal on cuda", lambda: wherry.rehearse("cuda"), device="cuda")
REHEARSAL_HOST = Peer("rehearsal on cuda, CPU tensors", lambda: wherry.rehearse("cuda"))


def agree(peer: Peer, value: torch.Tensor, plain: torch.Tensor) -> bool:
    """Whether the peer computed what the CPU computes, to the last bit; of one that computes nothing, the shape.

    Ask while the peer is still on: a tensor of a rehearsal comes home by `.cpu()`.
    """
    if not peer.computes:
        return value.shape == plain.shape and value.dtype == plain.dtype
    return torch.equal(value.detach().cpu(), plain)
