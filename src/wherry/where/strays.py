"""What `Module.to` leaves behind, and the sentence that mends it for good.

`Module.to` moves the parameters and buffers of a module and of the modules registered in it, and their gradients. It leaves
everything else: tensors that are plain attributes, tensors and modules in lists and dicts, what functions have captured, what
objects hold, an optimizer's state. `left_behind` finds those, wherever they are now.

Not left behind, because nobody has to move it: the step counter of an optimizer that keeps it on the host, the `batch_sizes`
of a packed sequence, a weight that a hook computes anew before each forward.

Source: torch/nn/modules/module.py, `Module._apply` (2.6 to 2.14): a parameter keeps its object and gets other data, a buffer
is replaced by another object, so that whoever else kept the buffer keeps the old one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from wherry import tree
from wherry.tree import Found, Kind
from wherry.where.walk import Again, Leaf, walk

HOSTS_OWN = ("batch_sizes",)
"""What is on the host wherever the rest is: the lengths of a `PackedSequence`."""

_COUNTERS = ("step", "mu_product")
"""States of an optimizer that are on the host unless it is capturable or fused (torch/optim/adam.py, nadam.py, `_init_group`)."""


@dataclass(frozen=True, slots=True)
class Stray:
    """A tensor that the `to` of a module leaves behind. Keeps it alive, so it is for the length of a call.

    Attributes:
        path: How a person would write it: "model.layers[0].scale".
        tensor: The tensor itself.
        found: The path as objects and steps.
        fix: What to write so that it moves from then on, one sentence.
        why: Why nothing moves it, the end of a sentence: "is a plain attribute of Net, neither a parameter nor a buffer".
    """

    path: str
    tensor: Any
    found: Found
    fix: str
    why: str


def left_behind(module: Any, name: str = "model") -> tuple[Stray, ...]:
    """Every tensor in a module that `module.to(...)` would leave where it is, on whatever device that is.

    Args:
        module: An `nn.Module`.
        name: How it is written in the paths.

    Returns:
        One `Stray` for each tensor, by the first path to it. Parts of the module that are missing here move.
    """
    registered: dict[int, Any] = {}
    buffers: dict[int, Any] = {}
    strays: dict[int, Leaf] = {}
    for leaf in walk([(name, module)]):
        if isinstance(leaf, Again) or not tree.is_tensor(leaf.value):
            continue
        if leaf.moves:
            kept = registered if leaf.step is not None and leaf.step.kind is Kind.PARAMETER else buffers
            kept[id(leaf.value)] = leaf.value
        elif id(leaf.value) not in registered and id(leaf.value) not in strays and not stays(leaf):
            strays[id(leaf.value)] = leaf
    shared = {key for one in (*registered.values(), *buffers.values()) if (key := _storage(one)) is not None}
    return tuple(
        Stray(leaf.path(), leaf.value, found, fix_of(found, second_name=_storage(leaf.value) in shared), why_of(found))
        for leaf in strays.values()
        for found in [leaf.found()]
    )


def _storage(tensor: Any) -> int | None:
    """A number that is the same for all tensors over the same bytes; None where there are none."""
    from wherry.dispatch import storage_below

    try:
        return storage_below(tensor)[1]
    except (NotImplementedError, RuntimeError):  # sparse, functorch
        return None


def stays(leaf: Leaf) -> bool:
    """Whether a tensor belongs on the host wherever the rest is."""
    step, branch = leaf.step, leaf.branch
    if step is None or branch is None:
        return False
    if step.key in HOSTS_OWN and tree.has_class(
        branch.value, "torch.nn.utils.rnn", "PackedSequence_", "PackedSequence"
    ):
        return True
    if step.kind is Kind.ITEM and branch.step is not None and branch.step.kind is Kind.GROUP:
        return True  # lr, betas and other settings; the parameters of the group are somebody else's
    if branch.step is not None and branch.step.kind is Kind.STATE and step.key in _COUNTERS:
        return not _counts_on_device(branch.parent.value if branch.parent is not None else None, branch.about)
    return False


def _counts_on_device(optimizer: Any, param: Any) -> bool:
    """Whether an optimizer keeps its step counter beside the parameter: only if capturable, or fused."""
    groups = tree.attribute(optimizer, "param_groups")
    if not tree.is_a(groups, list):
        return False
    for group in list.__iter__(groups):
        params = tree.item(group, "params")
        if tree.is_a(params, list) and any(one is param for one in list.__iter__(params)):
            return tree.item(group, "capturable") is True or tree.item(group, "fused") is True
    return False


# -- why, and the lasting fix


def why_of(found: Found) -> str:
    """Why nothing moves a tensor that is left behind, as the end of a sentence."""
    for position, (owner, step) in enumerate(zip(found.owners, found.steps, strict=True)):
        if tree.is_optimizer(owner):
            return f"is in an optimizer ({tree.class_name(owner)}), which the `to` of a module does not know"
        if tree.is_tensor(owner):
            return f"is an attribute of a {tree.class_name(owner)}, which keeps it as it is when it moves"
        if not tree.is_module(owner) or step.kind in (Kind.PARAMETER, Kind.BUFFER, Kind.MODULE):
            continue
        cls, path = tree.class_name(owner), (*found.owners[position + 1 :], found.value)
        for holder, later in zip(found.owners[position:], found.steps[position:], strict=True):
            if tree.is_optimizer(holder):
                return f"is in an optimizer ({tree.class_name(holder)}), which the `to` of a module does not know"
            if later.text == ".cache[...]":
                return f"is in a functools cache that {cls} has"
            if later.kind is Kind.DEFAULT:
                return f"is a default argument of a function of {cls}"
            if later.kind in (Kind.CELL, Kind.BOUND):
                return f"is remembered by a function that {cls} has"
        held = path[0]
        if tree.is_tensor(held):
            if step.kind is Kind.CLASS:
                return f"stands in the body of the class {cls}, shared by all its objects"
            return f"is a plain attribute of {cls}, neither a parameter nor a buffer"
        if tree.is_module(held):
            return f"is in a module that {cls} has not registered"
        if _container(held) is not None:
            what = "a module in a plain" if any(tree.is_module(one) for one in path[1:]) else "a plain"
            return f"is in {what} {tree.class_name(held)}, and {cls} does not look into it"
        return f"is in an object that is no module ({tree.class_name(held)})"
    return "is in nothing that moves"


_OF_OPTIMIZER = "Move the optimizer as well, `wherry.move({}, device)`, or construct it after the module has moved."


def fix_of(found: Found, *, second_name: bool = False) -> str:
    """What to write so that a tensor that is left behind moves from then on.

    Args:
        found: The path to it.
        second_name: Whether it is a buffer by another path, or a view of what moves.
    """
    for position, (owner, step) in enumerate(zip(found.owners, found.steps, strict=True)):
        if tree.is_optimizer(owner):
            return _OF_OPTIMIZER.format(found.prefix(position))
        if tree.is_tensor(owner):
            module = found.prefix(position - 1) if position else "the module"
            return f"Keep it in {module} beside {found.prefix(position)}: `{module}.register_buffer(...)`."
        if tree.is_module(owner) and step.kind not in (Kind.PARAMETER, Kind.BUFFER, Kind.MODULE):
            return _in_module(found, position, second_name=second_name)
    return f"Move it where it is used: {found.text}.to(device)."


def _in_module(found: Found, position: int, *, second_name: bool) -> str:
    """The fix for what hangs in a module by a step that registers nothing."""
    step, owner = found.steps[position], found.owners[position]
    cls, name = tree.class_name(owner), str(step.key)
    path = (*found.owners[position + 1 :], found.value)
    held = path[0]
    path_to = found.prefix(position)
    if tree.module_of(type(owner)).startswith("torch."):  # not the program's own class to change
        place, init, me = f"the module that makes {path_to}", "Write", path_to
    else:
        place, init, me = f"{cls}.__init__", f"In {cls}.__init__, write", "self"
    for later, kind in enumerate(found.steps[position:], position):
        if kind.kind in (Kind.CELL, Kind.DEFAULT, Kind.BOUND) or kind.text == ".cache[...]":
            return _captured(found, later, place)
        if tree.is_optimizer(found.owners[later]):
            return _OF_OPTIMIZER.format(found.prefix(later))
    if name.startswith("_forward"):
        return f"A hook of {found.prefix(position)} holds it: make it a buffer of that module, and read it there in the hook."
    if tree.is_tensor(held):
        if second_name:
            return (
                f"Read the parameter or buffer itself where it is used: {found.text} is a second name for its values, and keeps "
                "the old ones when it moves."
            )
        if _is_parameter(held):
            return f"{init} `{me}.{name} = nn.Parameter(...)` after super().__init__(), so that it is registered."
        written = name.lower() if step.kind is Kind.CLASS else name
        return f"{init} `{me}.register_buffer({written!r}, {written}, persistent=False)`."
    if tree.is_module(held):
        return f"{init} `{me}.{name} = ...` after super().__init__(), which registers the module."
    container = _container(held)
    if container is None:
        kind = tree.class_name(held)
        return (
            f"Keep the tensors of {found.prefix(position + 1)}, a {kind}, as buffers of {cls} and build it from them when it is "
            f"used, or make {kind} an nn.Module that registers them."
        )
    wanted = next((f"nn.Module{container}" for one in path[1:] if tree.is_module(one)), None)
    if wanted is None and _is_parameter(found.value):
        wanted = f"nn.Parameter{container}"
    if wanted is not None:
        inner = next((one for one in path[1:] if _container(one) is not None), None)
        keys = tree.is_a(held, dict) and type(found.steps[position + 1].key) is not str
        extra = (
            ", whose keys are strings: str(key)" if keys else ", and what is nested in it in another" if inner else ""
        )
        return f"{init} `{me}.{name} = {wanted}(...)`{extra}."
    index = "key" if container == "Dict" else "i"
    return (
        f"{init} `{me}.register_buffer(f'{name.strip('_')}_{{{index}}}', tensor, persistent=False)` for each tensor in "
        f"{me}.{name}, and read them by these names."
    )


def _captured(found: Found, position: int, place: str) -> str:
    """The fix for what a function remembers."""
    step = found.steps[position]
    name = step.key if type(step.key) is str else "tensor"
    if step.kind is Kind.DEFAULT:
        return (
            f"{name} is a default argument, made once when the function was defined: make it None, and in the function "
            f"take self.{name}, of `self.register_buffer({name!r}, {name}, persistent=False)` in {place}."
        )
    if step.kind is Kind.CELL:
        return (
            f"The function captured {name}: make it a buffer, `self.register_buffer({name!r}, {name}, persistent=False)` in "
            f"{place}, and read self.{name} in the function."
        )
    if step.text.startswith(".cache["):
        return "A functools cache remembers it: put the device among the arguments, or keep it as a buffer and not in a cache."
    return (
        f"A function remembers it: make it a buffer, `self.register_buffer({name!r}, ..., persistent=False)` in {place}, "
        "and read that in the function."
    )


def _is_parameter(obj: object) -> bool:
    return tree.has_class(obj, "torch.nn.parameter", "Parameter")


def _container(obj: object) -> str | None:
    """Which container of torch.nn is like a builtin one: "List" or "Dict"; None for what is no container."""
    if tree.is_a(obj, dict) or tree.has_class(obj, "collections", "UserDict"):
        return "Dict"
    if type(tree.class_attribute(obj, "_fields")) is tuple:
        return None
    if any(tree.is_a(obj, cls) for cls in (list, tuple, set, frozenset, deque)) or tree.has_class(
        obj, "collections", "UserList"
    ):
        return "List"
    return None
