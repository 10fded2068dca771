"""The dispatch mode of a device that is smaller than the host: with less memory, or with kernels for fewer dtypes.

Ops pay for it only in a rehearsal with a limit, which every profile has. What an op would allocate is known before the host
allocates it: a bound from its arguments, and where that does not settle it, a run on the meta device.
"""

from __future__ import annotations

from typing import Any

from wherry.dispatch import OpOverload
from wherry.rehearse import accounting, dtypes
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
        if not self.acting or not isinstance(func, OpOverload):  # a higher-order operator is a program of ops
            return super().__torch_dispatch__(func, types, args, kwargs)
        accounting.foresee(self.session, func, args, kwargs or {})
        if not self.session.profile.no_compute or dtypes.computes_nothing(self.session.backend, func):
            return super().__torch_dispatch__(func, types, args, kwargs)
        dtypes.check_operands(self.session, func, args, kwargs or {})
        out = super().__torch_dispatch__(func, types, args, kwargs)
        dtypes.check_result(self.session, func, out)
        return out
