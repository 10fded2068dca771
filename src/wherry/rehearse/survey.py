"""The dispatch mode that notes which operators a program uses, and on which lines. For `wherry ops --used-by`.

The program runs on the host, and what it used is looked up afterwards, for any backend. So operators are noted as a device
would be asked for them: those that fall back as a whole before they are taken apart, and what an explicitly composite one
calls where that matters.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from wherry import backends, callsite
from wherry.dispatch import OpOverload, signature
from wherry.ops import catalog
from wherry.ops.catalog import LACKING
from wherry.rehearse.fallback import crossing
from wherry.rehearse.mode import Mode
from wherry.rehearse.records import operands_of
from wherry.rehearse.running import running_call


class SurveyMode(Mode):
    """A `Mode` that notes what passes."""

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        uses = self.session.uses
        if uses is None or not self.acting or not isinstance(func, OpOverload):
            return super().__torch_dispatch__(func, types, args, kwargs)
        name = signature(func).name
        if name in catalog.MADE_OF:
            return self.decompose(func, args, kwargs or {})
        name = catalog.whole(name, lambda: running_call().name) or name
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if out is not NotImplemented:
            named = _named_where_lacked(name)
            nbytes = 0
            if named is not None:  # what would cross on such a device
                operands = tuple(operands_of(func, args, kwargs or {}))
                nbytes = crossing(operands, out, makes_out=named != name and not any(o.output for o in operands))
            uses.add(name, nbytes, callsite.user_frame(sys._getframe(1)))
        return out


@cache
def _named_where_lacked(name: str) -> str | None:
    """What a backend without a kernel for an operator calls it; None where all have one."""
    found = (catalog.support(name, backend) for backend in backends.all())
    return next((support.named for support in found if support.standing in LACKING), None)
