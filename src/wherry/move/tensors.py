"""Tensors to one device: what shares bytes shares them afterwards, and nothing else about them changes.

`carry(tensors, order)` answers with what takes the place of what, by identity. Tensors that nothing is special about go by
`Tensor.to`, one by one: no others over their storage, from its first byte on, contiguous, without gradient. That is
looked at for all of them at once, in C. The rest is looked at one by one (`_Careful`):

- several tensors over one storage: the storage is copied once, and each is the same view of the copy;
- expanded tensors and other views that overlap themselves: what lies below is copied, not what they seem to be;
- leaves of autograd stay leaves, with their `.grad`; what has a history stays connected to it;
- classes, attributes and names stay.

Views that use little of a large storage are not worth all of it: a view alone takes its own elements, and several that lie
far apart in it take the parts that they use.

Source: torch.Tensor.to; aten/src/ATen/native/TensorConversions.cpp (torch 2.13).
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.parameter import Parameter, is_lazy

from wherry import dispatch
from wherry.move import packed
from wherry.units import MIB

_WHOLE = MIB
"""A storage up to this size is copied whole for the views of it, however little they use."""
_ALIGNED = 16  # bytes: the size of the largest element


class Failed(Exception):
    """A tensor that could not be copied, or a module that could not be moved; the cause says why."""

    def __init__(self, what: Tensor | torch.nn.Module) -> None:
        self.what = what


@dataclass(frozen=True, slots=True)
class Order:
    """Where tensors are to go, and as what.

    Attributes:
        device: The device, with its index if it has one.
        dtype: The dtype of floating point tensors; None leaves it.
        casts: The dtypes that the device lacks, and what takes their place.
        queues: Whether a copy from pinned memory may be queued on this device, so that the host runs ahead.
        copy: Whether what is already there is copied, too.
        counts: The identities of tensors that keep their dtype whatever is asked for: step counters, scales, settings.
    """

    device: torch.device
    dtype: torch.dtype | None = None
    casts: Mapping[torch.dtype, torch.dtype] = field(default_factory=dict[torch.dtype, torch.dtype])
    queues: bool = False
    copy: bool = False
    counts: set[int] = field(default_factory=set[int])

    @property
    def is_plain(self) -> bool:
        """Whether nothing but the device changes, and only where it is another."""
        return self.dtype is None and not self.casts and not self.copy

    def dtype_of(self, tensor: Tensor) -> torch.dtype | None:
        """The dtype that a tensor will have; None if it keeps its own."""
        wanted = self.wanted(tensor)
        wanted = self.casts.get(wanted, wanted)
        return None if wanted is tensor.dtype else wanted

    def wanted(self, tensor: Tensor) -> torch.dtype:
        """The dtype that it would have if the device had them all."""
        dtype = tensor.dtype
        if self.dtype is None or not dtype.is_floating_point or id(tensor) in self.counts:
            return dtype
        return self.dtype

    def concerns(self, tensor: Tensor) -> bool:
        """Whether anything is to be done with a tensor."""
        return self.copy or tensor.device != self.device or self.dtype_of(tensor) is not None

    def copied(self, tensor: Tensor, dtype: torch.dtype | None = None, *, copy: bool = False) -> Tensor:
        """`Tensor.to`. From accelerator to host it is complete when it returns."""
        queued = self.queues and (tensor.device.type != "cpu" or tensor.is_pinned())
        if dtype is None:
            return tensor.to(self.device, non_blocking=queued, copy=copy)
        return tensor.to(self.device, dtype, non_blocking=queued, copy=copy)


def carry(tensors: list[Tensor], order: Order, *, plain: bool, bare: frozenset[int] = frozenset()) -> dict[int, Tensor]:
    """What takes the place of what, by identity; only what changes.

    Args:
        tensors: Each may occur several times.
        order: Where to.
        bare: The identities of parameters that only give their data, so that their copies have no gradients.
        plain: Whether all of them are of the class `torch.Tensor` itself, and none has attributes.

    Raises:
        Failed: one could not be copied.
    """
    if plain and order.is_plain and are_simple(tensors):
        try:
            moved = simple_copies(tensors, order.device, queues=order.queues)
            return {id(old): new for old, new in zip(tensors, moved, strict=True) if new is not old}
        except Exception:  # noqa: BLE001, S110 - the careful way meets it again, and knows which one it was
            pass
    return _Careful(order, bare).carry(tensors)


def are_at(tensors: list[Tensor], device: torch.device) -> bool:
    """Whether all of some tensors reside on a device."""
    if device.type == "cpu":
        for tensor in tensors:  # noqa: SIM110 - all() with a generator costs half as much again
            if not tensor.is_cpu:  # two thirds of the time of .device
                return False
        return True
    for tensor in tensors:  # noqa: SIM110 - as above
        if tensor.device != device:
            return False
    return True


def are_simple(tensors: list[Tensor]) -> bool:
    """Whether each is all of its storage that anybody sees, and has nothing that `Tensor.to` would lose."""
    try:
        for tensor in tensors:
            if tensor.requires_grad or not tensor.is_contiguous() or tensor.__dict__:
                return False
        # Fewer storages than tensors: two over one, or one that is there twice.
        return len(set(map(Tensor.untyped_storage, tensors))) == len(tensors)
    except RuntimeError:  # without a storage: sparse, nested, functorch's (NotImplementedError is one)
        return False


def simple_copies(tensors: list[Tensor], device: torch.device, *, queues: bool = False) -> list[Tensor]:
    """Copies of tensors that nothing is special about; of those that are there already, the tensors themselves."""
    if queues:
        return _queued(tensors, device)
    if device.type == "meta":  # nothing to copy, and half the work of `to`
        return [tensor if tensor.is_meta else torch.empty_like(tensor, device=device) for tensor in tensors]
    return [tensor.to(device) for tensor in tensors]


def _queued(tensors: list[Tensor], device: torch.device) -> list[Tensor]:
    """Copies to an accelerator: from pinned memory queued, of many small tensors as one."""
    moved = list(tensors)
    pageable: list[int] = []
    for position, tensor in enumerate(tensors):
        if not tensor.is_cpu or tensor.is_pinned():
            moved[position] = tensor.to(device, non_blocking=True)
        else:
            pageable.append(position)
    sources = [tensors[position] for position in pageable]
    copies = packed.copied(sources, device) if packed.are_worth_it(sources) else [t.to(device) for t in sources]
    for position, copy in zip(pageable, copies, strict=True):
        moved[position] = copy
    return moved


class _Careful:
    """Tensors that each have to be looked at."""

    def __init__(self, order: Order, bare: frozenset[int]) -> None:
        self.order = order
        self.bare = bare
        self.changed: dict[int, Tensor] = {}
        self.at: Tensor | None = None  # the one that is being looked at: what goes wrong goes wrong with it

    def carry(self, tensors: list[Tensor]) -> dict[int, Tensor]:
        try:
            self._carry(tensors)
        except Exception as err:
            assert self.at is not None
            # The error is kept as long as somebody looks at it, and must not keep what it left no room for.
            self.changed.clear()
            traceback.clear_frames(err.__traceback__)
            raise Failed(self.at) from err
        return self.changed

    def _carry(self, tensors: list[Tensor]) -> None:
        once = {id(tensor): tensor for tensor in tensors}
        with_gradient: list[tuple[Tensor, Tensor]] = []
        for tensor in list(once.values()):
            self.at = tensor
            if tensor.is_leaf and tensor.grad is not None:
                with_gradient.append((tensor, tensor.grad))
                once[id(tensor.grad)] = tensor.grad
        storages: dict[int, list[Tensor]] = {}
        alone: list[Tensor] = []
        for tensor in once.values():
            self.at = tensor
            if self.order.concerns(tensor):
                key = _storage_key(tensor)
                (alone if key is None else storages.setdefault(key, [])).append(tensor)
        for tensor in alone:
            self.at = tensor
            self._put(tensor, self._by_itself(tensor))
        for sharing in storages.values():
            self.at = sharing[0]
            with torch.no_grad():
                self._over_one_storage(sharing)
        for tensor, gradient in with_gradient:  # at last: gradients are among the others
            moved = self.changed.get(id(tensor))
            if moved is not None and id(tensor) not in self.bare:
                moved.grad = self.changed.get(id(gradient), gradient)

    def _by_itself(self, tensor: Tensor) -> Tensor:
        dtype = self.order.dtype_of(tensor)
        if not tensor.requires_grad or not tensor.is_leaf or is_lazy(tensor) or _is_transformed(tensor):
            return self.order.copied(tensor, dtype, copy=self.order.copy)
        with torch.no_grad():
            return self.order.copied(tensor.detach(), dtype, copy=self.order.copy)

    def _over_one_storage(self, tensors: list[Tensor]) -> None:
        with dispatch.without_functions():
            pairs = [(tensor, _raw(tensor)) for tensor in tensors]
        if len(pairs) == 1:
            tensor, raw = pairs[0]
            if not _overlaps_itself(raw):
                moved = self.order.copied(raw, self.order.dtype_of(tensor), copy=self.order.copy)
                self._put(tensor, moved, raw=raw)
                return
        dtypes = {raw.dtype: self.order.dtype_of(tensor) for tensor, raw in pairs}
        if len(dtypes) == 1:
            self._as_views(pairs, next(iter(dtypes.values())), as_bytes=False)
            return
        # Views of the same bytes as several dtypes. Those that are converted can share them no longer.
        left: list[tuple[Tensor, Tensor]] = []
        for tensor, raw in pairs:
            dtype = dtypes[raw.dtype]
            if dtype is None:
                left.append((tensor, raw))
            else:
                self.at = tensor
                self._put(tensor, self.order.copied(raw, dtype), raw=raw)
        self._as_views(left, None, as_bytes=len({raw.dtype for _, raw in left}) > 1)

    def _as_views(self, pairs: list[tuple[Tensor, Tensor]], dtype: torch.dtype | None, *, as_bytes: bool) -> None:
        """Copy the part of a storage that some tensors use, and take the same views of the copy."""
        if not pairs:
            return
        with dispatch.without_functions():
            for start, stop, among in _parts(pairs):
                self.at, raw = among[0]
                whole = _bytes(raw) if as_bytes else raw
                size = whole.element_size()
                flat = whole.as_strided(((stop - start) // size,), (1,), start // size)
                copied = self.order.copied(flat, dtype, copy=True)
                for tensor, raw in among:
                    self.at = tensor
                    base, size = copied, raw.element_size()
                    if as_bytes:
                        base = copied[: copied.numel() // size * size].view(raw.dtype)
                    offset = raw.storage_offset() - start // size
                    # .data: neither a view that autograd knows, nor one that was taken where it does not look, which
                    # nothing could write to that needs a gradient.
                    view = base.as_strided(raw.size(), raw.stride(), offset).data
                    self._put(tensor, view, raw=raw)

    def _put(self, tensor: Tensor, moved: Tensor, *, raw: Tensor | None = None) -> None:
        """Give a copy what its original has besides values."""
        if raw is not None:
            moved = dispatch.with_lazy_bits_of(moved, tensor)
        cls = type(tensor)
        # `Tensor.to` of a subclass gives the subclass; of a parameter, and of what was stripped, a plain tensor.
        if type(moved) is not cls:
            with dispatch.without_functions():
                if cls is Parameter:
                    moved = Parameter(moved, tensor.requires_grad)
                elif cls is not Tensor:
                    moved = moved.as_subclass(cls)
        is_leaf = tensor.requires_grad and tensor.is_leaf and moved.is_leaf and not moved.requires_grad
        if is_leaf and not _is_transformed(tensor):
            moved.requires_grad_()
        own = vars(tensor)
        if own and not dispatch.is_wrapper(tensor) and not is_lazy(tensor):
            vars(moved).update(own)
        self.changed[id(tensor)] = moved


def _is_transformed(tensor: Tensor) -> bool:
    """Whether torch.func is at work: then a derivative is a matter of its own levels, not of leaves."""
    return dispatch.functorch_level_below(tensor) is not None


def _storage_key(tensor: Tensor) -> int | None:
    """What is the same for all tensors over one storage; None for one that only its own `.to` knows how to copy."""
    if tensor.layout is not torch.strided or tensor.is_quantized or is_lazy(tensor):
        return None
    if tensor.requires_grad and not tensor.is_leaf:
        return None  # the copy has a history, too
    if dispatch.is_wrapper(tensor):
        return None
    try:
        _, key = dispatch.storage_below(tensor)
    except (NotImplementedError, RuntimeError):
        return None
    return None if any(getattr(tensor, "names", ())) else key  # dimensions have names up to torch 2.12


def _raw(tensor: Tensor) -> Tensor:
    """The same bytes as a plain tensor, without history and lazy bits."""
    return dispatch.without_lazy_bits(tensor.detach())


def _overlaps_itself(tensor: Tensor) -> bool:
    """Whether elements share bytes: expanded, or windows."""
    if tensor.is_contiguous() or tensor.numel() == 0:
        return False
    return tensor.numel() > _span(tensor)


def _span(tensor: Tensor) -> int:
    """From the first to behind the last element, in elements."""
    return 1 + sum(int(size - 1) * int(stride) for size, stride in zip(tensor.size(), tensor.stride(), strict=True))


def _bytes(raw: Tensor) -> Tensor:
    """All of a tensor's storage as bytes."""
    return torch.empty(0, dtype=torch.uint8, device=raw.device).set_(raw.untyped_storage())


def _parts(pairs: list[tuple[Tensor, Tensor]]) -> list[tuple[int, int, list[tuple[Tensor, Tensor]]]]:
    """The parts of a storage to copy, from byte to byte, each with the tensors over it.

    All of it, unless that is large and more than twice what is used.
    """
    nbytes = dispatch.storage_below(pairs[0][1])[0].nbytes()
    alone = len(pairs) == 1
    if not alone and nbytes <= _WHOLE:
        return [(0, nbytes, pairs)]
    ranges: list[tuple[int, int, list[tuple[Tensor, Tensor]]]] = []
    for tensor, raw in sorted(pairs, key=lambda pair: pair[1].storage_offset() * pair[1].element_size()):
        size = raw.element_size()
        start = int(raw.storage_offset()) * size
        stop = start + (_span(raw) * size if raw.numel() else 0)
        if ranges and start <= ranges[-1][1]:
            first, last, among = ranges[-1]
            among.append((tensor, raw))
            ranges[-1] = (first, max(last, stop), among)
        else:
            ranges.append((start // _ALIGNED * _ALIGNED if not alone else start, stop, [(tensor, raw)]))
    used = sum(stop - start for start, stop, _ in ranges)
    if not alone and nbytes <= 2 * used:
        return [(0, nbytes, pairs)]
    return ranges
