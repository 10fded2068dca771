"""What PyTorch itself does otherwise while a dispatch mode listens, done here as if none did.

Its C++ asks `isTensorSubclassLike` in some composites and in some formulas of autograd, and takes a way that suits tensors
it cannot look into. That way rounds otherwise, or leaves a check out. The functions are computed here by the ordinary way,
op by op, so that every op is still seen; the nodes of autograd run with the mode off its stack, since all that such a node
reads and returns is at one place.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from wherry.dispatch import functorch_level_below, pop_mode, push_mode
from wherry.rehearse.impersonate.patches import MISSING, Patch, to_torch_function
from wherry.rehearse.mode import Mode
from wherry.rehearse.records import mark_all, residence
from wherry.rehearse.surface import thread

# Functions


def _ctc_loss(original: Any) -> Any:
    """ctc_loss brings targets to the device and reads its lengths on the host (LossCTC.cpp, `ctc_loss.Tensor`).

    Under a dispatch mode it would keep the lengths as tensors, which real devices do not see.
    """

    @functools.wraps(original)
    def stand_in(
        log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, *rest: Any, **kwargs: Any
    ) -> Any:
        if thread.mode is not None:
            targets = targets.to(log_probs.device)
            input_lengths, target_lengths = (
                value.tolist() if isinstance(value, Tensor) and value.dim() == 1 else value
                for value in (input_lengths, target_lengths)
            )
        return original(log_probs, targets, input_lengths, target_lengths, *rest, **kwargs)

    return stand_in


def _matmul(original: Any) -> Any:
    """matmul of two batches, of which one has a single matrix: PyTorch folds that into one product under any dispatch mode.

    Elsewhere it repeats the matrix, unless it requires a gradient (LinearAlgebra.cpp, `_matmul_impl`, which asks
    `isTensorSubclassLike`). The last bits of the two ways differ, and so does the memory they take.
    """

    @functools.wraps(original)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 2 and not kwargs and thread.mode is not None:
            answer = to_torch_function(Tensor.matmul if stand_in.__name__ == "__matmul__" else stand_in, args, kwargs)
            if answer is not MISSING:
                return answer
            left, right = args
            if isinstance(left, Tensor) and isinstance(right, Tensor) and left.dim() == right.dim() == 3:
                a, b = left.shape[0], right.shape[0]
                if a != b and not (left if a == 1 else right).requires_grad and 1 in (a, b) and _is_plain(left, right):
                    batch = b if a == 1 else a  # which may be 0
                    repeated = (t.expand(batch, -1, -1).reshape(batch, t.shape[1], t.shape[2]) for t in args)
                    return torch.ops.aten._unsafe_view(torch.bmm(*repeated), [batch, left.shape[1], right.shape[2]])
        return original(*args, **kwargs)

    return stand_in


def _cross_entropy_loss(original: Any) -> Any:
    """cross_entropy with class weights and smoothed labels: under any dispatch mode PyTorch adds up the weights otherwise.

    Source: LossNLL.cpp, `cross_entropy_loss_label_smoothing`, which asks `isTensorSubclassLike`.
    """

    @functools.wraps(original)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        if thread.mode is None or kwargs or len(args) != 6:
            return original(*args, **kwargs)
        data, target, weight, reduction, ignored, smoothing = args
        mean = reduction == 1
        classes = isinstance(target, Tensor) and not target.is_floating_point() and target.shape != data.shape
        if not (classes and mean and 0 < smoothing <= 1 and isinstance(weight, Tensor)) or not _is_plain(
            data, target, weight
        ):
            return original(*args)
        dim = 0 if data.dim() == 1 else 1
        scores = torch.log_softmax(data, dim, data.dtype)
        loss = torch._C._nn.nll_loss_nd(scores, target, weight, reduction, ignored)
        shape = [1] * scores.dim()
        shape[dim] = weight.shape[0]
        smooth = -(scores * weight.view(shape)).sum(dim)
        skipped = target == ignored
        smooth.masked_fill_(skipped, 0.0)
        smooth = smooth.sum() / weight.gather(0, target.masked_select(~skipped).flatten()).sum()
        return (1 - smoothing) * loss + smooth * (smoothing / scores.shape[dim])

    return stand_in


def _is_plain(*tensors: Tensor) -> bool:
    """Whether tensors are strided and no subclasses, which PyTorch folds with or without a mode."""
    return all(
        type(t) in (Tensor, torch.nn.Parameter) and t.layout is torch.strided and functorch_level_below(t) is None
        for t in tensors
    )


# Nodes of autograd


ASK_WHO_LISTENS = frozenset(
    {
        "CumprodBackward0",
        "LinalgEigBackward0",
        "LinalgEighBackward0",
        "LinalgSvdBackward0",
        "MaskedFillBackward1",
        "ProdBackward0",
        "ProdBackward1",
    }
)
"""Nodes whose formula asks `isTensorSubclassLike`, which is true of every tensor while a dispatch mode listens.

Those of products take the way for zeros then, which rounds otherwise; those of decompositions do not raise where the loss
depends on the gauge (torch/csrc/autograd/FunctionsManual.cpp; `special.ASK_WHO_LISTENS` are the ops that make them).
"""


class _Rest(threading.local):
    """The mode of this thread that is off its stack while a node runs."""

    mode: Mode | None = None


_rest = _Rest()


@contextlib.contextmanager
def quietly(outputs: Iterable[Any]) -> Iterator[None]:
    """Let these nodes below `outputs` run without our mode, in this thread and until the block ends.

    Everything that such a node reads and returns is at one place, so there is no law to judge.
    """
    handles = []
    seen = set()
    stack = [getattr(output, "node", None) or output.grad_fn for output in outputs]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        stack.extend(following for following, _ in node.next_functions)
        if node.name() in ASK_WHO_LISTENS:
            handles += _quiet(node)
    before = _rest.mode
    try:
        yield
    finally:
        _rest.mode = before
        for handle in handles:
            handle.remove()


def _quiet(node: Any) -> list[Any]:
    """Hooks around one node. Should it raise between them, the engine itself puts the modes of its thread back."""
    ours = threading.get_ident()  # another thread may run the same node, between hooks of its own

    def before(gradients: tuple[Tensor | None, ...]) -> None:
        # With a graph of the gradients wanted, what the node computes is part of that, and must be seen.
        if threading.get_ident() == ours and not torch.is_grad_enabled():
            _rest.mode = pop_mode(Mode)

    def after(inputs: tuple[Tensor | None, ...], gradients: tuple[Tensor | None, ...]) -> None:
        if threading.get_ident() != ours or _rest.mode is None:
            return
        push_mode(_rest.mode)
        _rest.mode = None
        place = next((residence(g) for g in gradients if g is not None), None)
        if place is not None:
            mark_all(inputs, place)

    return [node.register_prehook(before), node.register_hook(after)]


_hooks_init = torch.autograd.graph.saved_tensors_hooks.__init__


def _saved_tensors_hooks(self: Any, pack_hook: Any, unpack_hook: Any) -> None:
    """saved_tensors_hooks(): what unpacks a tensor is a program (checkpoint computes again), so the mode listens to it."""

    @functools.wraps(unpack_hook)
    def unpack(packed: Any) -> Any:
        mode = _rest.mode
        if mode is None:
            return unpack_hook(packed)
        _rest.mode = None
        push_mode(mode)
        try:
            return unpack_hook(packed)
        finally:
            pop_mode(Mode)
            _rest.mode = mode

    _hooks_init(self, pack_hook, unpack_hook if thread.mode is None else unpack)


def patches() -> Iterator[Patch]:
    """Names of torch, torch.linalg, torch.Tensor and torch._C._nn."""
    yield Patch(
        torch.autograd.graph.saved_tensors_hooks, "__init__", functools.wraps(_hooks_init)(_saved_tensors_hooks)
    )
    yield Patch(torch, "ctc_loss", _ctc_loss(torch.ctc_loss))
    yield Patch(torch._C._nn, "cross_entropy_loss", _cross_entropy_loss(torch._C._nn.cross_entropy_loss))
    for owner, name in ((torch, "matmul"), (torch.linalg, "matmul"), (Tensor, "matmul"), (Tensor, "__matmul__")):
        yield Patch(owner, name, _matmul(getattr(owner, name)))
