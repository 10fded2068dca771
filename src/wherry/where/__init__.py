"""What resides where: every tensor of an object by its path, the bytes, and what strayed.

walk       an object as tensors and the paths to them, without running its code
measure    one tensor as facts
strays     what `Module.to` leaves behind, and the sentence that mends it
judge      which tensors are astray
take       all of these together -> Inventory
files      a checkpoint file -> Inventory, from its headers
inventory  the answer: plain facts; rows, text and html show it, printable what may be shown of it
"""

from __future__ import annotations

import os
from typing import Any

from wherry import tree
from wherry.where.inventory import Astray, Entry, Inventory, Role, Shared, Total

__all__ = ["Astray", "Entry", "Inventory", "Role", "Shared", "Total", "where"]


def where(obj: Any, *, name: str | None = None) -> Inventory:
    """Say what resides where: every tensor in an object, its device, its bytes, and which ones are astray.

    What is called astray, in a module: a tensor that its `to` leaves behind (a plain attribute, in a list, captured by a
    function, an optimizer's state) and that is on none of the devices of the module that it hangs in; or a registered one on
    the host beside others of the same module on an accelerator. In an optimizer: state that is not where its parameter
    is. In anything else: tensors on the host among those on an accelerator, or the reverse where most are on the host. What
    the next `to` of a module would leave behind, but is in place now, is listed after those, as latent. The precise rules,
    and what is never astray, are on its page, docs/where.md.

    Args:
        obj: A module, an optimizer, a tensor, a batch or a training state, nested in any way; or the path of a checkpoint
            (.pt, .safetensors, a sharded index, a folder with one), of which only headers are read.
        name: How the object is to be written in the paths; by default "model", "optimizer", "batch" or "state".

    Returns:
        An `Inventory` of plain facts: it keeps nothing of the object alive.

    Raises:
        BadCheckpoint: a file that is no checkpoint, is damaged, or would run code.
        FileNotFoundError: there is no such file.

    >>> import torch
    >>> print(where({"ids": torch.zeros(2, 3, dtype=torch.int64), "mask": torch.ones(2, 3, dtype=torch.bool)}))
    batch  dict  2 tensors, 54 B on cpu: int64 48 B, bool 6 B
    <BLANKLINE>
                   shape  dtype  device  bytes
      batch    2 tensors  2 dtypes  cpu    54 B  dict
        ['ids']      2x3  int64     cpu    48 B  item
        ['mask']     2x3  bool      cpu     6 B  item
    """
    # Not isinstance: PathLike would ask the class of the object, and hash it.
    if tree.is_a(obj, str) or tree.class_attribute(obj, "__fspath__") is not tree.MISSING:
        from wherry.where.files import read

        return read(os.fspath(obj))
    from wherry.where.take import take

    return take(obj, _name_of(obj) if name is None else name)


def _name_of(obj: Any) -> str:
    import torch  # noqa: F401 - a module is known by its class, which has to be there

    if tree.is_module(obj):
        return "model"
    if tree.is_optimizer(obj):
        return "optimizer"
    if tree.is_tensor(obj):
        return "tensor"
    parts = [value for _, value in tree.children(obj, most=100)]
    return "state" if any(tree.is_module(part) or tree.is_optimizer(part) for part in parts) else "batch"
