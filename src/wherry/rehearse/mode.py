"""The dispatch mode: for every op, residency in, law, run on the CPU, residency out.

This is the hot path of wherry. Where every operand resides at one place and the op asks for no device, an op costs the
reading of each operand's record, the op, and one record for each new storage. Everything else leaves by one of two
doors: `special` (ops that name a device, draw random numbers, move, or exchange storages) and `Mode.meet` (operands at
different places: settle the floating ones, then ask `laws`).

*Explicit, inherited, floating.* A factory op without operands either comes straight from the program, or a C++
composite makes a helper with `self.options()`, which says cpu because our tensors are CPU tensors. They can be told
apart: PyTorch's Python bindings always pass `pin_memory`, composites never do (tests/torch_contract/test_factories.py).
So the device of the former is what it says. The helper is *floating*: it comes to reside where the first operand that
it meets resides.

Budget: at most 1.3 times the overhead of an empty dispatch mode, held by benchmarks/dispatch_overhead.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor
from torch.nn import Parameter

from wherry.dispatch import DispatchMode, HigherOrderOperator, OpOverload, run_kernel, runner, signature
from wherry.rehearse import dtypes, laws, special
from wherry.rehearse.kernels import refusing
from wherry.rehearse.records import (
    FLOATING,
    HOST,
    PINNED,
    UNMARKED,
    Operand,
    is_wrapper,
    mark,
    mark_all,
    move_record,
    operands_of,
    settle_all,
)
from wherry.rehearse.wording import in_words_of
from wherry.storage import Place

if TYPE_CHECKING:
    from wherry.rehearse.session import Rehearsal

_PLAIN, _TENSOR, _SEQUENCE = 0, 1, 2


class _Kinds(dict[type, int]):
    """What an argument of a class is to us; asked once per class."""

    def __missing__(self, cls: type) -> int:
        kind = self[cls] = (
            _TENSOR if issubclass(cls, Tensor) else _SEQUENCE if issubclass(cls, list | tuple) else _PLAIN
        )
        return kind


_kinds = _Kinds()


class Mode(DispatchMode):
    """The mode of one thread in one rehearsal. `session` is shared by all threads of it."""

    supports_higher_order_operators = True

    def __init__(self, session: Rehearsal) -> None:
        super().__init__()
        self.session = session
        self.ops = 0
        self.acting = False
        """Whether this is the innermost rehearsal of its thread. An outer one lets ops pass."""
        self.target: Place | None = None
        """Where the `_to_copy` that is about to run goes. Set by the impersonated `Tensor.to`, for its own call only."""
        self.ambient: Place = HOST
        """Where the last op of this thread ran: the best guess for a helper that never meets an operand."""

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if not self.acting:
            return func(*args, **kwargs or {})
        self.ops += 1
        try:
            detour, run, fresh, _ = _plans[id(func)]  # its own hash is a function in Python
        except KeyError:
            detour, run, fresh, _ = _plan(func)
        if types and any(map(is_wrapper, types)):
            return NotImplemented  # it unwraps itself; we see the ops on what it holds
        if detour is not None:
            return detour(self, func, args, kwargs or {})

        here = None
        try:
            for operand in (*args, *kwargs.values()) if kwargs else args:
                cls = operand.__class__
                if cls is Tensor or cls is Parameter:
                    place = operand.untyped_storage()._wherry_record[0]
                    if place is not here:
                        if here is not None:
                            return self.meet(func, args, kwargs or {})
                        here = place
                elif (kind := _kinds[cls]) == _SEQUENCE:
                    for item in operand:
                        if _kinds[item.__class__] == _TENSOR:
                            place = item.untyped_storage()._wherry_record[0]
                            if place is not here:
                                if here is not None:
                                    return self.meet(func, args, kwargs or {})
                                here = place
                        elif item is not None:
                            break  # sizes, scalars
                elif kind == _TENSOR:
                    return self.meet(func, args, kwargs or {})
        except NotImplementedError:  # an operand has no storage: sparse, nested
            return self.meet(func, args, kwargs or {})

        try:
            out = run(*args, **kwargs) if kwargs else run(*args)
        except (RuntimeError, ValueError) as error:
            raise in_words_of(self.session.backend, here, error) from None
        if here is None:
            return out
        if here is not FLOATING:
            self.ambient = here
        if fresh:
            if out.__class__ is Tensor:
                try:
                    storage = out.untyped_storage()
                except NotImplementedError:
                    mark_all(out, here)
                    return out
                if storage._wherry_record is UNMARKED:
                    if here.lacks and out.dtype in here.lacks:
                        return dtypes.fit(self.session, func, args, out, here)
                    mark(storage, here)
            else:
                mark_all(out, here)
        return out

    def meet(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Operands at different places: settle the floating ones, then let the laws decide where the op runs."""
        operands = tuple(operands_of(func, args, kwargs))
        if any(operand.tensor.is_meta for operand in operands):
            return self.meet_meta(func, operands, args, kwargs)
        settled = self.settle(operands)
        places = {operand.place for operand in settled}
        if len(places) <= 1:
            here = next(iter(places), HOST)
        else:
            verdict = laws.judge(self.session.backend, func, settled, args, kwargs)
            if verdict is laws.DECOMPOSE:
                return self.decompose(func, args, kwargs)
            here = verdict
        return self.common(func, args, kwargs, here)

    def meet_meta(
        self, func: OpOverload, operands: tuple[Operand, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A meta tensor among the operands: PyTorch's own code knows what to do, except that it sees the device as cpu."""
        try:
            return func._op(*args, **kwargs)
        except RuntimeError as error:
            names = [o.place.name for o in operands if o.place.index is not None]
            if not names:
                raise
            raise type(error)(str(error).replace("on device cpu ", f"on device {names[0]} ")) from None

    def common(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], here: Place) -> Any:
        """Run an op whose place is known."""
        out = (_plans.get(id(func)) or _plan(func)).run(*args, **kwargs)
        self.ambient = here
        if here.lacks:
            return dtypes.fit(self.session, func, (*args, *kwargs.values()), out, here)
        mark_all(out, here)
        return out

    def decompose(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a composite op so that we see the ops it is made of: the law is theirs.

        What it made by the options of its first operand and never brought together with another resides there.
        """
        with self:
            out = run_kernel(func, signature(func).composite, args, kwargs)
        first = next(operands_of(func, args, kwargs)).place
        if first is not FLOATING:
            settle_all(out, HOST if first is PINNED else first)
        return out

    def settle(self, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        """Let floating operands come to reside with the first resident one they meet.

        A 0-dim tensor of the host says nothing: it may meet any device. Pinned memory counts as the host. A helper of a
        dtype that the device lacks goes on floating.
        """
        if not any(operand.place is FLOATING for operand in operands):
            return tuple(o._replace(place=HOST) if o.place is PINNED else o for o in operands)
        anchor = None
        # An out= that a composite made for itself follows the first operand, as its options do.
        outward = all(o.keyword_only and o.output for o in operands if o.place is FLOATING)
        for operand in operands:
            place = operand.place
            if place is FLOATING:
                continue
            if place.index is not None or outward:
                anchor = HOST if place is PINNED else place
                break
            if anchor is None and operand.tensor.dim() > 0:
                anchor = HOST
        if anchor is None:
            return tuple(o._replace(place=FLOATING) for o in operands)
        for operand in operands:
            if operand.place is FLOATING and operand.tensor.dtype not in anchor.lacks:
                move_record(operand.tensor, anchor)
        return tuple(
            o._replace(place=anchor if o.place is FLOATING else HOST if o.place is PINNED else o.place)
            for o in operands
        )


class Plan(NamedTuple):
    """What is known of an overload before it is called."""

    detour: special.Special | None  # None on the common path
    run: Callable[..., Any]
    fresh: bool
    func: OpOverload  # kept, so that no other object comes to have its id


_plans: dict[int, Plan] = {}


def _plan(func: OpOverload) -> Plan:
    if isinstance(func, HigherOrderOperator):
        plan = Plan(special.higher_order, func, False, func)
    else:
        plan = Plan(special.of(func), refusing(func, runner(func)), signature(func).fresh, func)
    _plans[id(func)] = plan
    return plan
