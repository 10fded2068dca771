"""A movement inside a function that torch.compile traces: what torch's own pytree can take apart, by `Tensor.to`.

The compiler follows that, and makes the copies part of its graph. What two tensors share there is its affair.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from wherry import dispatch


def traced(obj: Any, device: Any, dtype: torch.dtype | None) -> Any:
    """The object with its tensors on a device."""
    if isinstance(obj, torch.nn.Module):
        return obj.to(device, dtype)

    def to(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        return leaf.to(device, dtype) if dtype is not None and leaf.is_floating_point() else leaf.to(device)

    return dispatch.mapped(to, obj)
