"""The dispatch mode that notes which operators a program uses, and on which lines. For `wherry ops --used-by`.

The program runs on the host, and what it used is looked up afterwards, for any backend. So operators are noted as a device
would be asked for them: those that fall back as a whole before they are taken apart, and what an explicitly composite one
calls where that matters.
"""

from __future__ import annotations

import sys
from typing import Any

from wherry import backends, callsite
from wherry.dispatch import OpOverload, signature
from wherry.ops import catalog
from wherry.ops.coverage import LACKING
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
        name = catalog.whole(name, running_call().name) or name if name in catalog.PARTS else name
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if out is not NotImplemented:
            nbytes = _crossing(name, func, args, kwargs or {}, out) if _is_lacked(name) else 0
            uses.add(name, nbytes, callsite.user_frame(sys._getframe(1)))
        return out


def _crossing(name: str, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> int:
    """How many bytes would cross on a device that lacks an operator."""
    operands = tuple(operands_of(func, args, kwargs))
    named = next(s.named for b in backends.all() if (s := catalog.support(name, b)).standing in LACKING)
    makes_out = named != name and not any(operand.output for operand in operands)
    return crossing(operands, out, makes_out=makes_out)


def _is_lacked(name: str) -> bool:
    """Whether some backend has no kernel for an operator."""
    return any(catalog.support(name, backend).standing in LACKING for backend in backends.all())
