"""The names that are read are those that torch itself allows."""

from __future__ import annotations

import torch
import torch._dynamo.decorators
import torch.nested
from torch import _weights_only_unpickler

from wherry.where.files import unpickled


def ours() -> set[str]:
    names = {f"{module}.{name}" for module, name in unpickled.ALLOWED}
    for name in (*unpickled._STORAGES, *unpickled.ITEMSIZE):
        names |= {f"{module}.{name}" for module in ("torch", "torch.cuda") if unpickled.stand_in(module, name)}
    return names


def test_nothing_is_allowed_that_weights_only_does_not_allow() -> None:
    allowed = set(_weights_only_unpickler._get_allowed_globals())
    allowed |= set(_weights_only_unpickler._get_user_allowed_globals())  # also of parts of torch that are imported

    more = ours() - allowed

    assert {name for name in more if _is_known(name)} == set()


def _is_known(name: str) -> bool:
    """Whether the installed torch has it at all: an older one lacks newer dtypes."""
    module, _, last = name.rpartition(".")
    return not module.startswith("torch") or hasattr(eval(module, {"torch": torch}), last)


def test_names_that_torch_allows_are_among_them() -> None:
    """The twin: both sets are about the same names."""
    assert {
        "torch._utils._rebuild_tensor_v2",
        "collections.OrderedDict",
        "torch.FloatStorage",
        "torch.bfloat16",
    } <= ours()
    assert len(ours() & set(_weights_only_unpickler._get_allowed_globals())) > 60


def test_a_stand_in_is_never_the_thing_itself() -> None:
    for module, name in unpickled.ALLOWED:
        assert not isinstance(unpickled.stand_in(module, name), torch.dtype)
    assert unpickled.stand_in("os", "system") is None
    assert unpickled.stand_in("builtins", "eval") is None
