"""The dispatch mode where memory is limited: what an op would allocate is known before the host allocates it.

Ops pay for it only in a rehearsal with a limit: a bound from their arguments, and where that does not settle it, a run
on the meta device.
"""

from __future__ import annotations

from typing import Any

from wherry.dispatch import OpOverload
from wherry.rehearse import accounting
from wherry.rehearse.mode import Mode


class LimitedMode(Mode):
    """A `Mode` that asks first."""

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if self.acting and isinstance(func, OpOverload):  # a higher-order operator is a program of ops
            accounting.foresee(self.session, func, args, kwargs or {})
        return super().__torch_dispatch__(func, types, args, kwargs)
