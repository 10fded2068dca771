"""Modules and optimizers: what they register, what moves with them, what they make of their input.

Source: torch/nn/modules/module.py (`_apply`), torch/nn/modules/rnn.py, torch/optim/*.py.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from wherry.explain.belief import functions, objects
from wherry.explain.belief.pytorch import MOVER
from wherry.explain.belief.values import (
    CONTAINERS,
    MISSING,
    Defaulting,
    Given,
    device,
    flat,
    is_module,
    is_tensor,
    part,
    put,
)
from wherry.explain.idioms import MOVES
from wherry.explain.message import Complaint
from wherry.tree import Described, Kind, Step

if TYPE_CHECKING:
    from wherry.explain.belief.program import Run

_WEIGHTED = frozenset(
    """Linear Bilinear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LayerNorm GroupNorm BatchNorm1d
    BatchNorm2d BatchNorm3d InstanceNorm1d InstanceNorm2d SyncBatchNorm LazyLinear LazyConv2d""".split()
)
_WEIGHT_ONLY = frozenset("Embedding EmbeddingBag PReLU RMSNorm".split())
_RECURRENT = frozenset("LSTM GRU RNN".split())
_CELLS = frozenset("LSTMCell GRUCell RNNCell".split())
_STATES = {
    "Adam": ("exp_avg", "exp_avg_sq"), "AdamW": ("exp_avg", "exp_avg_sq"), "NAdam": ("exp_avg", "exp_avg_sq"),
    "RAdam": ("exp_avg", "exp_avg_sq"), "Adamax": ("exp_avg", "exp_inf"), "Adagrad": ("sum",), "RMSprop": ("square_avg",),
    "Adadelta": ("square_avg", "acc_delta"), "Rprop": ("prev",), "ASGD": ("ax",), "SGD": ("momentum_buffer",),
}  # fmt: skip
_SAME = frozenset("train eval requires_grad_ double half float bfloat16 type share_memory compile".split())


# -- making


def construct(run: Run, name: str, given: Given) -> Any:
    """A call of a name below `torch.nn`."""
    args, kwargs, node = given
    last = name.rpartition(".")[2]
    first = args[0] if args else MISSING
    if last in ("Parameter", "Buffer"):
        of = first if is_tensor(first) else kwargs.get("data", MISSING)
        if not is_tensor(of):
            of = run.tensor("cpu", node)
        made = run.view(of, dim=max(1, of.dim))
        made.is_parameter, made.name, made.meaning, made.has_history = last == "Parameter", last, None, False
        return made
    if ".init." in name:
        return first
    if last in ("pack_padded_sequence", "pack_sequence"):
        lengths = args[1] if len(args) > 1 else kwargs.get("lengths", MISSING)
        if is_tensor(lengths) and lengths.device not in (None, "cpu") and run.read.complaint is Complaint.HOST_ONLY:
            run.conflict(node, [("lengths", lengths)])
        made = Described("object", "PackedSequence", made=run.made(node))
        where = next((v.device for v in flat([first]) if is_tensor(v)), None)
        data = run.tensor(where, node)
        put(made, Kind.ATTRIBUTE, "data", data)
        put(made, Kind.ATTRIBUTE, "batch_sizes", run.tensor("cpu", node, dim=0))
        return made
    if last == "pad_packed_sequence":
        return (part(first, "data") if type(first) is Described else MISSING, run.tensor("cpu", node))
    if last == "register_parametrization" and len(args) > 2 and is_module(first) and is_module(args[2]):
        put(first, Kind.MODULE, "parametrizations", args[2])
        first.meaning = ("parametrized", args[1])
        return first
    if ".utils." in name and is_module(first) and any(is_tensor(one) for one in flat(args[1:])):
        run.meet(node, [*((None, value) for _, _, _, value in walk(first)), *((None, one) for one in args[1:])])
    if ".utils." in name:
        return first if is_module(first) else run.meet(node, [(None, one) for one in args])
    made = Described("module", last, made=run.made(node))
    build(run, made, last, given)
    return made


def build(run: Run, made: Described, name: str, given: Given) -> None:
    """Register what a layer of PyTorch's registers."""
    args, kwargs, node = given
    asked = kwargs.get("device")
    where = run.default if asked is None else run.device_of(asked, unknown=run.away)

    def weight(*names: str) -> None:
        for one in names:
            value = run.tensor(where, node)
            value.is_parameter, value.name = True, "Parameter"
            put(made, Kind.PARAMETER, one, value)

    def layer(attribute: str, inner: str) -> None:
        other = Described("module", inner, made=run.made(node))
        build(run, other, inner, Given([], {} if asked is None else {"device": asked}, node))
        put(made, Kind.MODULE, attribute, other)

    plain = kwargs.get("bias") is False or kwargs.get("elementwise_affine") is False
    if name in _WEIGHTED:
        if (
            not (name.startswith("InstanceNorm") and kwargs.get("affine") is not True)
            and kwargs.get("affine") is not False
        ):
            weight(*(("weight",) if plain else ("weight", "bias")))
        if name.startswith(("BatchNorm", "SyncBatch")) and kwargs.get("track_running_stats") is not False:
            for buffer in ("running_mean", "running_var"):
                put(made, Kind.BUFFER, buffer, run.tensor(where, node))
    elif name in _WEIGHT_ONLY:
        weight("weight")
    elif name in _RECURRENT:
        weight("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        made.meaning = {"batch_first": kwargs.get("batch_first")}
    elif name in _CELLS:
        weight("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    elif name == "MultiheadAttention":
        weight("in_proj_weight", "in_proj_bias")
        layer("out_proj", "Linear")
    elif name in ("TransformerEncoderLayer", "TransformerDecoderLayer"):
        for attribute, inner in (("self_attn", "MultiheadAttention"), ("linear1", "Linear"), ("linear2", "Linear"),
                                 ("norm1", "LayerNorm"), ("norm2", "LayerNorm")):  # fmt: skip
            layer(attribute, inner)
    elif name in CONTAINERS:
        _fill(made, args)
    elif name in ("TransformerEncoder", "TransformerDecoder"):
        inner = Described("module", "ModuleList")
        for number in range(2):
            value = copied(run, args[0], node) if args else MISSING
            if is_module(value):
                put(inner, Kind.MODULE, str(number), value)
        put(made, Kind.MODULE, "layers", inner)
    elif name in ("DataParallel", "DistributedDataParallel") and args and is_module(args[0]):
        put(made, Kind.MODULE, "module", args[0])
    elif name.endswith("Loss"):
        order = ("pos_weight",) if name == "BCEWithLogitsLoss" else ()
        for key in ("weight", *order):
            value = kwargs.get(key, args[0] if args and key == "weight" else None)
            if is_tensor(value):
                put(made, Kind.BUFFER, key, run.view(value))


def _fill(made: Described, args: list[Any]) -> None:
    given: list[tuple[str, Any]] = []
    if len(args) == 1 and isinstance(args[0], dict):
        given = [(str(key), value) for key, value in args[0].items()]
    else:
        values = args[0] if len(args) == 1 and type(args[0]) in (list, tuple) else args
        given = [(str(number), value) for number, value in enumerate(values)]
    for key, value in given:
        if is_module(value):
            put(made, Kind.MODULE, key, value)
        elif is_tensor(value):
            put(made, Kind.PARAMETER, key, value)


def copied(run: Run, value: Any, node: ast.AST) -> Any:
    """A deep copy."""
    known: dict[int, Any] = {}

    def copy(one: Any) -> Any:
        if id(one) in known:
            return known[id(one)]
        if type(one) in (list, tuple):
            return type(one)(copy(item) for item in one)
        if isinstance(one, dict):
            return {key: copy(item) for key, item in one.items()}
        if type(one) is not Described or one.role in ("function", "class", "namespace"):
            return one
        made = Described(
            one.role, one.name, one.device, definition=one.definition, is_parameter=one.is_parameter, dim=one.dim,
            dtype=one.dtype, storage=object(), made=run.made(node), cls=one.cls, meaning=one.meaning,
        )  # fmt: skip
        known[id(one)] = made
        made.parts += [(step, copy(item)) for step, item in one.parts if step.kind is not Kind.GRAD]
        return made

    return copy(value)


# -- what is registered


def items(obj: Described) -> list[Any]:
    """What a loop over a container of modules runs over."""
    parts = [(step, value) for step, value in obj.parts if step.kind in (Kind.MODULE, Kind.PARAMETER)]
    if obj.name in ("ModuleDict", "ParameterDict"):
        return [step.key for step, _ in parts]
    return [value for _, value in parts]


def walk(obj: Described, prefix: str = "", depth: int = 8) -> list[tuple[str, Described, Step, Any]]:
    """Every parameter and buffer of a module, with its dotted name and the module that has it."""
    found = [
        (f"{prefix}{step.key}", obj, step, value) for step, value in obj.parts
        if step.kind in (Kind.PARAMETER, Kind.BUFFER) and is_tensor(value)
    ]  # fmt: skip
    for step, value in obj.parts:
        if step.kind is Kind.MODULE and is_module(value) and depth:
            found += walk(value, f"{prefix}{step.key}.", depth - 1)
    return found


def modules(obj: Described, depth: int = 8) -> list[Described]:
    """A module and those registered in it."""
    found = [obj]
    for step, value in obj.parts:
        if step.kind is Kind.MODULE and is_module(value) and depth:
            found += [one for one in modules(value, depth - 1) if one not in found]
    return found


def get_attribute(run: Run, obj: Described, name: str, node: ast.AST) -> Any:
    """An attribute that is none of the module's own parts."""
    if name == "training":
        return MISSING
    if name in ("_buffers", "_parameters", "_modules"):
        kind = {"_buffers": Kind.BUFFER, "_parameters": Kind.PARAMETER}.get(name, Kind.MODULE)
        return {step.key: value for step, value in obj.parts if step.kind is kind}
    if name == "device":
        found = next((v.device for _, _, _, v in walk(obj)), None)
        return MISSING if found is None else device(found)
    wrapped = part(obj, "module") if obj.name in ("DataParallel", "DistributedDataParallel") else MISSING
    return MISSING if wrapped is MISSING else objects.get_attribute(run, wrapped, name, node)


def get_item(run: Run, obj: Described, key: Any, node: ast.AST) -> Any:
    """`modules[key]`."""
    parts = [(step, value) for step, value in obj.parts if step.kind in (Kind.MODULE, Kind.PARAMETER)]
    if isinstance(key, slice):
        made = Described("module", obj.name, made=run.made(node))
        for number, (_, value) in enumerate(parts[key]):
            put(made, Kind.MODULE, str(number), value)
        return made
    own = objects.find_attribute(obj, "__getitem__")
    if own is not MISSING:
        return functions.call(run, objects.bind(own, obj), Given([key], {}, node))
    if type(key) is int and -len(parts) <= key < len(parts):
        return parts[key][1]
    if type(key) is str:
        return part(obj, key)
    return parts[0][1] if parts else MISSING


# -- moving


def move(run: Run, obj: Described, where: str | None, node: ast.AST) -> None:
    """`Module._apply`: parameters keep their object and get new bytes, buffers become new tensors."""
    made = run.made(node)
    for _, owner, step, value in walk(obj):
        if value.device == where or where is None:
            continue
        if step.kind is Kind.PARAMETER:
            value.device, value.storage, value.made = where, object(), made
            grad = part(value, "grad")
            if is_tensor(grad):
                grad.device, grad.storage, grad.made = where, object(), made
        else:
            other = Described("tensor", "Tensor", where, dim=value.dim, dtype=value.dtype, storage=object(), made=made)
            put(owner, step.kind, step.key, other)


def call_method(run: Run, obj: Described, name: str, given: Given) -> Any:
    """A method that every module has."""
    args, kwargs, node = given
    first = args[0] if args else MISSING
    if name in MOVES or name == "to_empty":
        return _moved(run, obj, name, given)
    if name == "_apply" or (name == "apply" and first is not MISSING):
        if name == "_apply":
            _applied(run, obj, first, node)
        else:
            for one in modules(obj):
                functions.call(run, first, Given([one], {}, node))
        return obj
    if name in _SAME:
        return obj
    if name in ("__call__", "forward"):
        return _forward(run, obj, given)
    if name in ("register_buffer", "register_parameter", "add_module", "register_module"):
        value = args[1] if len(args) > 1 else next(iter(kwargs.values()), MISSING)
        kind = {"register_buffer": Kind.BUFFER, "register_parameter": Kind.PARAMETER}.get(name, Kind.MODULE)
        if type(first) is str and type(value) is Described:
            put(obj, kind, first, value)
        return None
    if name in ("register_forward_hook", "register_forward_pre_hook"):
        key = "_forward_pre_hooks" if "pre" in name else "_forward_hooks"
        obj.parts.append((Step(Kind.ATTRIBUTE, key, f".{key}[...]"), first))
        return Described("object", "RemovableHandle")
    listed = _listed(obj, name)
    if listed is not None:
        return listed
    if name == "load_state_dict" and kwargs.get("assign") is True:
        for dotted, owner, step, old in walk(obj):
            loaded = first.get(dotted, MISSING) if isinstance(first, dict) else first
            if is_tensor(loaded):
                new = run.view(loaded)
                new.is_parameter, new.name, new.meaning = old.is_parameter, old.name, None
                put(owner, step.kind, step.key, new)
        return None
    if name in ("append", "insert", "extend", "update"):
        for value in flat(args) if name != "update" else []:
            if is_module(value) or is_tensor(value):
                kind = Kind.MODULE if is_module(value) else Kind.PARAMETER
                put(obj, kind, str(len(items(obj))), value)
        return obj
    if name in ("get_buffer", "get_parameter", "get_submodule") and type(first) is str:
        found: Any = obj
        for word in first.split("."):
            found = part(found, word) if type(found) is Described else MISSING
        return found
    if name in ("flatten_parameters", "zero_grad", "extra_repr", "load_state_dict"):
        return None
    wrapped = part(obj, "module") if obj.name in ("DataParallel", "DistributedDataParallel") else MISSING
    return functions.call_method(run, wrapped, name, given) if is_module(wrapped) else MISSING


def _moved(run: Run, obj: Described, name: str, given: Given) -> Any:
    args, kwargs, node = given
    asked = kwargs.get("device", args[0] if args else None)
    if name in ("to", "to_empty"):
        if (type(asked) is Described and asked.role == "namespace") or asked is None:
            return obj  # a cast
        where = run.device_of(asked, unknown=run.away)
    elif name == "cpu":
        where = "cpu"
    else:
        where = f"{name}:{run.current}" if asked is None else run.device_of(asked, unknown=run.away)
    own = objects.find_attribute(obj, "_apply")
    if own is not MISSING and type(own) is Described and own.role == "function":
        mover = Described("namespace", f"{MOVER}{where}")
        functions.call(run, objects.bind(own, obj), Given([mover], {}, node))
        return obj
    # A module inside may have its own `_apply`.
    before: list[tuple[Described, str, Any]] = []
    for one in modules(obj)[1:]:
        override = objects.find_attribute(one, "_apply")
        if override is not MISSING and type(override) is Described and override.role == "function":
            before += [(one, str(s.key), (v.device, v.storage, v.made, v, s)) for _, _, s, v in walk(one)]
    move(run, obj, where, node)
    for owner, key, (place, storage, made, value, step) in before:
        value.device, value.storage, value.made = place, storage, made
        if part(owner, key) is not MISSING:
            put(owner, step.kind, key, value)
    return obj


def _applied(run: Run, obj: Described, mover: Any, node: ast.AST) -> None:
    """`super()._apply(fn)`, where `fn` is what `_moved` made."""
    if type(mover) is Described and mover.name.startswith(MOVER):
        move(run, obj, mover.name.removeprefix(MOVER), node)


def _listed(obj: Described, name: str) -> Any:
    """Lists of what a module has; None for other methods."""
    if name in ("parameters", "buffers", "named_parameters", "named_buffers"):
        kind = Kind.PARAMETER if "parameters" in name else Kind.BUFFER
        found = [(dotted, value) for dotted, _, step, value in walk(obj) if step.kind is kind]
        return found if name.startswith("named") else [value for _, value in found]
    if name == "state_dict":
        return {dotted: _detached(value) for dotted, _, _, value in walk(obj)}
    if name in ("modules", "named_modules"):
        return modules(obj) if name == "modules" else [(MISSING, one) for one in modules(obj)]
    if name in ("children", "named_children", "values", "items", "keys"):
        kinds = (Kind.MODULE, Kind.PARAMETER) if obj.name in CONTAINERS else (Kind.MODULE,)
        found = [(step.key, value) for step, value in obj.parts if step.kind in kinds]
        if name in ("children", "values"):
            return [value for _, value in found]
        return [key for key, _ in found] if name == "keys" else found
    return None


def _detached(value: Described) -> Described:
    return Described(
        "tensor", "Tensor", value.device, dim=value.dim, dtype=value.dtype, storage=value.storage, made=value.made
    )


# -- running


def call(run: Run, obj: Described, given: Given) -> Any:
    """`module(x)`."""
    args, kwargs, node = given
    own = objects.find_attribute(obj, "__call__")
    if own is not MISSING:
        return functions.call(run, objects.bind(own, obj), given)
    for hook in _hooks(obj, "_forward_pre_hooks"):
        changed = functions.call(run, hook, Given([obj, tuple(args)], {}, node))
        if is_tensor(changed):
            args = [changed]
        elif type(changed) is tuple:
            args = list(changed)
    given = Given(args, kwargs, node)
    forward = objects.find_attribute(obj, "forward")
    own = objects.bind(forward, obj)
    result = _forward(run, obj, given) if forward is MISSING else functions.call(run, own, given)
    for hook in _hooks(obj, "_forward_hooks"):
        changed = functions.call(run, hook, Given([obj, tuple(args), result], {}, node))
        result = result if changed in (None, MISSING) else changed
    return result


def _hooks(obj: Described, key: str) -> list[Any]:
    return [value for step, value in obj.parts if step.key == key]


def _forward(run: Run, obj: Described, given: Given) -> Any:
    """What PyTorch's own layers compute."""
    args, kwargs, node = given
    name = obj.name if obj.cls is None else next(iter(objects.foreign_bases(obj.cls)), "").rpartition(".")[2]
    first = args[0] if args else MISSING
    if name in ("Sequential", "DataParallel", "DistributedDataParallel", "TransformerEncoder"):
        inner = part(obj, "layers") if name == "TransformerEncoder" else obj
        for step, value in inner.parts if type(inner) is Described else []:
            if step.kind is Kind.MODULE:
                args = [call(run, value, Given(args, {}, node))]
        return args[0] if args else MISSING
    own = [
        (str(step.key), value) for step, value in obj.parts
        if step.kind in (Kind.PARAMETER, Kind.BUFFER) and is_tensor(value)
    ]  # fmt: skip
    if not own:
        own = [(step_name, value) for step_name, _, _, value in walk(obj)][:4]
    if type(obj.meaning) is tuple and obj.meaning[:1] == ("parametrized",):
        weight = part(obj, obj.meaning[1])
        functions.call(run, part(obj, "parametrizations"), Given([weight], {}, node))
    if name in _RECURRENT | _CELLS:
        return _recur(run, name, own, given)
    operands: list[tuple[str | None, Any]] = [("input", first), *((None, one) for one in args[1:])]
    operands += list(kwargs.items())
    packed = part(first, "data") if type(first) is Described and first.name == "PackedSequence" else MISSING
    if packed is not MISSING:
        operands[0] = ("input", packed)
    if name in ("Flatten", "Identity", "Dropout", "Unflatten") and is_tensor(first):
        return first if name in ("Identity", "Dropout") else run.view(first)
    dim = 0 if name.endswith("Loss") else 1
    result = run.meet(node, [*operands, *own], scalars=False, dim=dim)
    if name == "MultiheadAttention":
        return (result, result)
    return result


def _recur(run: Run, name: str, own: list[Any], given: Given) -> Any:
    args, _, node = given
    first = args[0] if args else MISSING
    data = part(first, "data") if type(first) is Described and first.name == "PackedSequence" else first
    states = [value for value in flat(args[1:2]) if is_tensor(value)]
    result = run.meet(node, [("input", data), *(("hx", one) for one in states), *own], scalars=False)
    if not is_tensor(result):
        result = run.tensor(own[0][1].device if own else None, node)
    if name == "LSTMCell":
        return (result, run.view(result))
    if name in _CELLS:
        return result
    state = run.tensor(result.device, node)
    state.has_history = True
    output: Any = result
    if data is not first:
        output = Described("object", "PackedSequence", made=run.made(node))
        put(output, Kind.ATTRIBUTE, "data", result)
    return (output, (state, run.view(state)) if name == "LSTM" else state)


# -- optimizers


def empty_state() -> Defaulting:
    """`optimizer.state`: a dictionary for each parameter."""
    made = Defaulting()
    made.factory = Described("namespace", "builtins.dict")
    return made


def set_groups(obj: Described, params: Any) -> None:
    """`optimizer.param_groups`."""
    given = [one for one in flat([list(params.values()) if isinstance(params, dict) else params]) if is_tensor(one)]
    groups = [{"params": given}]
    if type(params) is list and params and all(isinstance(one, dict) for one in params):
        groups = [{**one, "params": flat([one.get("params", [])])} for one in params]
    put(obj, Kind.ATTRIBUTE, "state", empty_state())
    put(obj, Kind.ATTRIBUTE, "param_groups", groups)


def optimizer(run: Run, name: str, given: Given) -> Described:
    """One of PyTorch's optimizers."""
    args, kwargs, node = given
    made = Described("optimizer", name, made=run.made(node), meaning=kwargs)
    set_groups(made, args[0] if args else kwargs.get("params", MISSING))
    if name == "Adagrad":
        _give_state(run, made, node)
    return made


def _params(obj: Described) -> list[Described]:
    groups = part(obj, "param_groups")
    found = [one.get("params", []) for one in groups if isinstance(one, dict)] if type(groups) is list else []
    return [one for one in flat(found) if is_tensor(one)]


def _give_state(run: Run, obj: Described, node: ast.AST) -> None:
    state = part(obj, "state")
    names = _STATES.get(obj.name, ())
    if obj.name == "SGD" and not (type(obj.meaning) is dict and obj.meaning.get("momentum")):
        names = ()
    for one in _params(obj) if isinstance(state, dict) else []:
        if one not in state and names:
            state[one] = {name: run.tensor(one.device, node) for name in names}


def call_optimizer(run: Run, obj: Described, name: str, args: list[Any], node: ast.AST) -> Any:
    """A method of an optimizer of PyTorch's."""
    if name == "add_param_group":
        groups = part(obj, "param_groups")
        if type(groups) is list and args and isinstance(args[0], dict):
            groups.append(args[0])
        return None
    if name == "state_dict":
        return {"state": part(obj, "state"), "param_groups": part(obj, "param_groups")}
    if name != "step":
        return None
    _give_state(run, obj, node)
    state = part(obj, "state")
    for one in _params(obj):
        grad = part(one, "grad")
        operands: list[tuple[str | None, Any]] = [("self", one)]
        if is_tensor(grad):
            operands.append(("grad", grad))
        held = state.get(one, {}) if isinstance(state, dict) else {}
        operands += [(key, value) for key, value in held.items() if is_tensor(value)] if isinstance(held, dict) else []
        run.meet(node, operands)
    return None
