"""What PyTorch's functions and the methods of tensors do with devices. NumPy, and the parts of Python that wrap functions, too.

Only devices count: which device the result is on, whether it shares its bytes with an operand, whether the operands may be
together. Names that are not known give a tensor on the device of their operands.

Source: PyTorch documentation, "torch", "torch.Tensor", "Tensor Views".
"""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING, Any

from wherry.explain.belief import functions, layers, library, objects, python
from wherry.explain.belief.values import (
    DATA,
    MISSING,
    ClassText,
    Closure,
    Given,
    device,
    flat,
    is_tensor,
    part,
    put,
)
from wherry.explain.idioms import FACTORIES, LEGACY, MOVES
from wherry.explain.message import Complaint
from wherry.tree import Described, Kind

if TYPE_CHECKING:
    from wherry.explain.belief.program import Run

MOVER = "wherry.moves to "
"""How the function is called that `Module.to` hands to `Module._apply`; the device follows."""

VIEWS = frozenset(
    """view reshape squeeze unsqueeze transpose permute expand expand_as view_as reshape_as t T mT H mH data detach flatten
    contiguous narrow select unflatten diagonal real imag swapaxes movedim ravel unfold requires_grad_ refine_names rename
    detach_ squeeze_ unsqueeze_ retain_grad share_memory_ as_strided adjoint""".split()
)
_LISTS_OF_VIEWS = frozenset("chunk split unbind tensor_split hsplit vsplit split_with_sizes".split())
_ABOUT = frozenset(
    "shape size dim ndim numel stride nelement item tolist element_size storage_offset data_ptr is_contiguous".split()
)
_REDUCTIONS = frozenset("mean sum norm max min prod std var all any median amax amin logsumexp argmax argmin".split())
_LOSSES = frozenset(
    "cross_entropy mse_loss nll_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy kl_div".split()
)
_LIKE = frozenset("zeros_like ones_like rand_like randn_like full_like empty_like randint_like".split())
_NEW = frozenset("new_zeros new_ones new_full new_empty new_tensor new".split())
_CASTS = frozenset("float double half int long short byte bool bfloat16 char".split())
_TRANSPARENT = frozenset(
    "torch.compile torch.jit.script torch.no_grad torch.inference_mode torch.enable_grad torch.func.grad torch.func.vmap "
    "torch.vmap torch.func.grad_and_value torch.func.jacrev torch.func.jacfwd torch.func.functionalize "
    "torch.utils.checkpoint.checkpoint_wrapper torch.compiler.disable functools.wraps contextlib.contextmanager "
    "torch.func.hessian torch.func.vjp torch.jit.export torch._dynamo.optimize".split()
)


def name_of(run: Run, name: str) -> Any:
    """An attribute of an imported module: mostly only its dotted name."""
    if name.startswith("torch.") and name.count(".") == 1 and name[6:] in ("pi", "inf", "nan", "e"):
        return 3.14
    if name.startswith("math."):
        number = getattr(math, name[5:], MISSING)
        return number if type(number) is float else Described("namespace", name)
    if name.endswith(("__version__",)):
        return MISSING
    del run
    return Described("namespace", name)


# -- functions


def call(run: Run, name: str, given: Given) -> Any:
    """A call of an imported function or class, by its dotted name."""
    args, kwargs, node = given
    last = name.rpartition(".")[2]
    first = args[0] if args else MISSING
    if name in _TRANSPARENT:
        return first
    if name.startswith(MOVER):
        return (
            moved(run, first, "to", Given([device(name.removeprefix(MOVER))], {}, node)) if is_tensor(first) else first
        )
    if name.startswith(("numpy.", "np.")):
        return array(run, node, [*args, *kwargs.values()])
    if name.startswith("torch.nn.") and (last[:1].isupper() or ".init." in name or ".utils." in name):
        return layers.construct(run, name, given)
    if name.startswith("torch.optim.") and last[:1].isupper() and "lr_scheduler" not in name:
        return layers.optimizer(run, last, given) if "swa_utils" not in name else layers.copied(run, first, node)
    if name.startswith("torch."):
        return _torch(run, name, last, given)
    if name in ("copy.deepcopy", "copy.copy"):
        return layers.copied(run, first, node) if last == "deepcopy" else first
    if name == "functools.partial":
        from wherry.tree import Step

        made = Described("function", "partial", meaning=(first, args[1:], kwargs))
        made.parts += [(Step(Kind.BOUND, i, f".args[{i}]"), v) for i, v in enumerate(args[1:])]
        made.parts += [(Step(Kind.BOUND, k, f".keywords[{k!r}]"), v) for k, v in kwargs.items()]
        return made
    if name == "collections.defaultdict":
        return objects.defaulting(first)
    if name == "collections.OrderedDict":
        pairs = [p for p in first if type(p) in (tuple, list) and len(p) == 2] if type(first) is list else []
        return dict(first) if isinstance(first, dict) else dict(pairs)
    if name == "collections.deque":
        return list(first) if type(first) is list else []
    if name in ("collections.namedtuple", "typing.NamedTuple") and len(args) > 1:
        fields = args[1].replace(",", " ").split() if type(args[1]) is str else flat([args[1]])
        names = [(str(f[0] if type(f) is tuple else f), MISSING) for f in fields]
        return Described("class", str(first), meaning=ClassText(None, None, [], names))
    if name == "dataclasses.field":
        return (
            ("field factory", kwargs["default_factory"])
            if "default_factory" in kwargs
            else kwargs.get("default", MISSING)
        )
    if name == "dataclasses.replace" and type(first) is Described:
        made = Described(first.role, first.name, parts=list(first.parts), definition=first.definition, cls=first.cls)
        for key, value in kwargs.items():
            put(made, Kind.ATTRIBUTE, key, value)
        return made
    if last in ("SimpleNamespace", "Namespace", "AttrDict", "EasyDict"):
        made = Described("object", last, made=run.made(node))
        for key, value in {**(first if isinstance(first, dict) else {}), **kwargs}.items():
            put(made, Kind.ATTRIBUTE, key, value)
        return made
    if name in ("os.environ.get", "os.getenv"):
        return args[1] if len(args) > 1 else MISSING
    if name == "argparse.ArgumentParser":
        return Described("object", last, meaning=library.PARSER)
    if last in ("Thread", "Process") and "target" in kwargs:
        given = kwargs.get("args", ())
        functions.call(run, kwargs["target"], Given(list(given) if type(given) in (tuple, list) else [], {}, node))
        return MISSING
    if name.startswith("math."):
        known = all(type(one) in (int, float) and abs(one) < 1e6 for one in args) and last not in (
            "factorial",
            "comb",
            "perm",
        )
        return getattr(math, last)(*args) if known and hasattr(math, last) else MISSING
    if name == "functools.reduce" and len(args) > 1:
        return _reduced(run, args, node)
    if name in ("random.sample", "random.choice", "random.choices") and args:
        items = list(python.iterate(run, first, node, most=8))
        return items if last != "choice" else items[0] if items else MISSING
    if name.startswith("itertools."):
        return _itertools(run, last, args, node)
    if name.startswith("wherry."):
        return run_device(run) if last == "pick" else MISSING

    return python.call_unknown(run, given)


def run_device(run: Run) -> device:
    return device(run.away)


def _reduced(run: Run, args: list[Any], node: ast.AST) -> Any:

    values = list(python.iterate(run, args[1], node, most=8))
    values = [args[2], *values] if len(args) > 2 else values
    result = values[0] if values else MISSING
    for value in values[1:]:
        result = functions.call(run, args[0], Given([result, value], {}, node))
    return result


def _itertools(run: Run, last: str, args: list[Any], node: ast.AST) -> Any:

    columns = [list(python.iterate(run, one, node, most=8)) for one in args]
    if last == "chain":
        return [value for column in columns for value in column]
    if last == "product" and len(columns) == 2:
        return [(a, b) for a in columns[0] for b in columns[1]][:8]
    if last in ("cycle", "islice"):
        return args[0] if args else MISSING
    if last == "pairwise" and columns:
        return list(zip(columns[0], columns[0][1:], strict=False))
    return MISSING


def _torch(run: Run, name: str, last: str, given: Given) -> Any:
    args, kwargs, node = given
    first = args[0] if args else next(iter(kwargs.values()), MISSING)
    kind = run.away.partition(":")[0]
    if last == "is_available":
        asked = name.split(".")[-2]
        return (
            asked in (kind, "accelerator") or (asked == "mps" and kind == "mps") or MISSING
            if asked != "cuda"
            else kind == "cuda"
        )
    if last == "device_count":
        return run.count
    if last == "current_accelerator":
        return device(run.away)
    if last == "current_device":
        return run.current
    if last in ("set_device", "set_device_index") and type(first) in (int, str, device):
        where = run.device_of(first) or ""
        run.current = int(where.partition(":")[2] or 0)
        return None
    if name == "torch.device":
        if len(args) > 1:
            return device(f"{first}:{args[1]}" if type(args[1]) is int and type(first) is str else run.away)
        where = run.device_of(first, unknown=run.away)
        return device(where or run.away)
    if name == "torch.set_default_device":
        run.default = run.device_of(first, unknown=run.away) or run.away
        return None
    if name == "torch.Generator":
        asked = args[0] if args else kwargs.get("device")
        where = "cpu" if asked is None else run.device_of(asked, unknown=run.away)
        return Described("generator", "Generator", where, made=run.made(node), storage=object())
    if name.startswith(("torch.cuda.", "torch.mps.", "torch.xpu.", "torch.backends.")) and last not in LEGACY:
        return MISSING
    if name.startswith("torch.utils.data."):
        return library.data(last, args, kwargs)
    if name.startswith("torch.distributions."):
        return library.distribution(run, last, given)
    if name == "torch.load":
        asked = args[1] if len(args) > 1 else kwargs.get("map_location", MISSING)
        if asked is MISSING:
            return MISSING
        made = run.tensor(run.device_of(asked, unknown=run.away), node)
        made.meaning = DATA
        return made
    if last in ("pad_sequence", "pack_padded_sequence"):
        return layers.construct(run, name, given)
    if last in FACTORIES | LEGACY | _LIKE:
        return _factory(run, last, given)
    if last in (
        "manual_seed",
        "save",
        "set_grad_enabled",
        "set_default_dtype",
        "set_num_threads",
        "autocast",
        "is_tensor",
    ):
        return is_tensor(first) if last == "is_tensor" else MISSING
    if last in ("autograd", "finfo", "iinfo", "Size", "is_grad_enabled", "typename", "promote_types", "result_type"):
        return MISSING
    if last == "enable_nested_tensor" or name.startswith(("torch.distributed.", "torch.onnx.", "torch.profiler.")):
        return MISSING
    if name.startswith("torch.utils.checkpoint."):
        return functions.call(run, first, Given(args[1:], {}, node))
    if name == "torch.func.functional_call" and len(args) > 2:
        return run.meet(node, [(None, v) for v in (*_values(args[1]), *flat([args[2]]))])
    if name.startswith("torch.autograd.") and last == "grad":
        inputs = args[1] if len(args) > 1 else kwargs.get("inputs")
        return [run.tensor(v.device, node) for v in flat([inputs]) if is_tensor(v)]
    return _function(run, last, given)


def _values(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else flat([value])


def _function(run: Run, last: str, given: Given) -> Any:
    """An op that is called as a function."""
    args, kwargs, node = given
    operands = [(None, value) for value in args]
    operands += [(key, value) for key, value in kwargs.items() if key not in ("device", "dtype")]
    _generator(run, given)
    tensors = [value for _, value in operands if is_tensor(value)]
    dim = None
    if last in _LOSSES | _REDUCTIONS and len(args) <= 2 and "dim" not in kwargs and kwargs.get("reduction") != "none":
        dim = 0 if last in _LOSSES or len(args) == 1 else None
    scalars = last not in ("cat", "stack", "concat", "mm", "matmul", "bmm", "linear", "conv1d", "conv2d", "embedding", "einsum",
                           "grid_sample", "index_select", "gather", "cross_entropy", "layer_norm", "batch_norm")  # fmt: skip
    if last == "one_hot" or last in ("searchsorted", "bucketize"):
        scalars = False
    if last in VIEWS and tensors:
        return run.view(tensors[0], dim=tensors[0].dim)
    if last == "meshgrid" and tensors:
        return [run.tensor(value.device, node) for value in flat(args) if is_tensor(value)]
    if last == "stack":
        dim = 1
    if run.read.complaint is Complaint.HOST_ONLY:
        for value in tensors[1:]:
            if value.device not in (None, "cpu"):
                run.conflict(node, [(run.read.argument, value)])
    if last in _LISTS_OF_VIEWS and tensors:
        return [run.view(tensors[0]) for _ in range(_count(args, kwargs))]
    return run.meet(node, operands, scalars=scalars, dim=dim)


def _count(args: list[Any], kwargs: dict[str, Any]) -> int:
    numbers = [one for one in (*args, *kwargs.values()) if type(one) is int and 0 < one <= 16]
    return numbers[0] if numbers else 3


def _generator(run: Run, given: Given) -> None:
    args, kwargs, node = given
    found = kwargs.get("generator")
    if type(found) is not Described or found.role != "generator" or run.read.complaint is not Complaint.GENERATOR:
        return
    asked = run.device_of(kwargs["device"], unknown=run.away) if "device" in kwargs else None
    here = asked or next((one.device for one in args if is_tensor(one)), run.default)
    if here is not None and found.device is not None and here != found.device:
        run.conflict(node, [("generator", found)])


def _factory(run: Run, last: str, given: Given) -> Any:
    """What makes a tensor out of nothing, or out of Python's numbers."""
    args, kwargs, node = given
    first = args[0] if args else MISSING
    _generator(run, given)
    asked = kwargs.get("device")
    where = run.default if asked is None else run.device_of(asked, unknown=run.away)
    if last in _LIKE:
        if not is_tensor(first):
            return MISSING if "device" not in kwargs else run.tensor(where, node)
        return run.tensor(first.device if asked is None else where, node, dim=first.dim, dtype=first.dtype)
    dtype = _dtype(kwargs.get("dtype")) or {"randint": "int64", "randperm": "int64", "randn": "float32"}.get(last)
    if type(first) is Described and first.role == "array" and dtype is None:
        dtype = first.dtype
    if last in ("as_tensor", "from_numpy") and is_tensor(first) and (asked is None or where == first.device):
        return first
    if last in ("tensor", "as_tensor", "scalar_tensor"):
        number = type(first) in (int, float, bool) or first is MISSING
        return run.tensor(where, node, dim=0 if number and _is_number(node) else 1, dtype=dtype)
    return run.tensor("cpu" if last in LEGACY or last == "from_numpy" else where, node, dtype=dtype)


def _is_number(node: ast.AST) -> bool:
    given = node.args[0] if isinstance(node, ast.Call) and node.args else None
    return not isinstance(given, ast.List | ast.Tuple | ast.ListComp)


def _dtype(value: Any) -> str | None:
    if type(value) is Described and value.role == "namespace":
        last = value.name.rpartition(".")[2]
        return "float64" if last in ("float64", "double") else "complex128" if last == "cdouble" else last
    return None


def array(run: Run, node: ast.AST, operands: list[Any]) -> Any:
    """What NumPy makes: an array. A tensor of a device cannot become one."""
    for value in flat(operands):
        refused(run, value, node)
    made = Described("array", "ndarray", "cpu", dtype="float64", made=run.made(node), storage=object())
    if isinstance(node, ast.Call) and "float32" in ast.unparse(node):
        made.dtype = "float32"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _COUNTING:
        made.dtype = "int64"
    elif isinstance(node, ast.Subscript):
        made.dtype = operands[0].dtype
    return made


_COUNTING = ("integers", "randint", "permutation", "argmax", "argmin", "argsort", "bincount", "searchsorted")
"""What NumPy answers in integers."""


def refused(run: Run, value: Any, node: ast.AST) -> None:
    """A tensor that is to become an array: on a device, that is the failure."""
    if is_tensor(value) and value.device not in (None, "cpu") and run.read.complaint is Complaint.NUMPY:
        run.conflict(node, [("self", value)])


# -- tensors


def get_attribute(run: Run, obj: Described, name: str, node: ast.AST) -> Any:
    """`tensor.name`."""
    if obj.role == "array":
        return array(run, node, [obj]) if name == "T" else MISSING
    if name == "device":
        return MISSING if obj.device is None else device(obj.device)
    if name == "grad" and obj.meaning != DATA:
        found = part(obj, "grad")
        if found is MISSING and obj.is_parameter and obj.device is not None:
            found = Described("tensor", "Tensor", obj.device, storage=object(), made=obj.made)
            put(obj, Kind.GRAD, "grad", found)
        return found
    if name in VIEWS and obj.meaning != DATA:
        return run.view(obj, dim=obj.dim)
    if name in ("is_cuda", "is_mps", "is_xpu") and obj.device is not None:
        return obj.device.startswith(name[3:])
    own = part(obj, name)
    if own is not MISSING:
        return own
    if obj.meaning == DATA and name not in _ABOUT and not name.startswith("is_"):
        made = run.tensor(obj.device, node)
        made.meaning, made.made = DATA, obj.made
        put(obj, Kind.ATTRIBUTE, name, made)
        return made
    return MISSING


def get_item(run: Run, obj: Described, key: Any, node: ast.AST) -> Any:
    """`tensor[key]`: an index of the host may meet a tensor of a device, not the other way around."""
    if obj.meaning == DATA and not is_tensor(key) and type(key) in (str, int):
        return python._data_part(run, obj, key, node)
    keys = flat([key])
    for one in keys:
        if is_tensor(one) and one.device not in (None, "cpu", obj.device) and obj.device is not None:
            run.conflict(node, [("self", obj), ("indices", one)])
    if any(is_tensor(one) for one in keys):
        found = run.tensor(obj.device, node)
        found.has_history = obj.has_history
        return found
    return run.view(obj, dim=max(0, obj.dim - 1) if obj.dim > 1 and type(key) is int else obj.dim)


def call_method(run: Run, obj: Described, name: str, given: Given) -> Any:
    """A method of a tensor, an array or a generator."""
    args, kwargs, node = given
    if obj.role == "array":
        return MISSING if name in ("item", "tolist") else array(run, node, [obj, *args])
    if obj.role == "generator":
        return obj if name == "manual_seed" else MISSING
    if name in ("numpy", "__array__"):
        refused(run, obj, node)
        return Described("array", "ndarray", "cpu", made=run.made(node), storage=object())
    if name in MOVES or name == "type":
        return moved(run, obj, name, given)
    if obj.meaning == DATA and name in ("items", "values", "keys", "get", "pop"):
        return _of_data(run, obj, name, args, node)
    if name in _ABOUT:
        return MISSING
    if name == "backward":
        library.backward(run, node)
        return None
    if name in ("register_hook", "register_post_accumulate_grad_hook") and args:
        run.pending.append((args[0], obj, None))
    if name in ("is_floating_point", "is_complex") and obj.dtype is not None:
        return obj.dtype.startswith("float") is (name == "is_floating_point")
    if name in ("register_hook", "pin_memory", "is_floating_point", "zero_grad", "is_complex", "isfinite"):
        return obj if name == "pin_memory" else MISSING
    if name in VIEWS:
        return run.view(obj, dim=1 if name in ("unsqueeze", "expand") else obj.dim)
    if name in _LISTS_OF_VIEWS:
        return [run.view(obj) for _ in range(_count(args, kwargs))]
    if name in _NEW:
        asked = kwargs.get("device")
        return run.tensor(obj.device if asked is None else run.device_of(asked, unknown=run.away), node)
    if name in _CASTS:
        return run.tensor(obj.device, node, dim=obj.dim, dtype="float64" if name == "double" else None)
    if name in ("copy_", "set_", "zero_", "fill_", "normal_", "uniform_"):
        return obj
    dim = 0 if name in _REDUCTIONS and not args and "dim" not in kwargs else None
    operands: list[tuple[str | None, Any]] = [("self", obj), *((None, one) for one in args)]
    operands += [(key, one) for key, one in kwargs.items() if key not in ("dtype", "generator")]
    scalars = name not in ("mm", "matmul", "bmm", "mv", "dot", "index_select", "gather", "scatter_", "scatter_add_",
                           "index_add_", "index_copy_", "scatter", "index_add")  # fmt: skip
    _generator(run, Given([obj], kwargs, node))
    made = run.meet(node, operands, scalars=scalars, dim=dim)
    if name.endswith("_") and not name.endswith("__"):
        return obj
    return made


REFUSED: dict[str | None, str] = {"float64": "float64", "ComplexDouble": "complex128"}
"""The dtypes that a device does not take, by the names that messages have for them (`Message.dtype`)."""


def moved(run: Run, obj: Described, name: str, given: Given) -> Any:
    args, kwargs, node = given
    asked = kwargs.get("device", args[0] if args else None)
    if name in ("to", "type"):
        if type(asked) is Described and asked.role == "namespace":
            return run.tensor(obj.device, node, dim=obj.dim, dtype=_dtype(asked))
        if name == "type" or (asked is None and "dtype" in kwargs) or _is_dtype(node):
            return run.tensor(obj.device, node, dim=obj.dim, dtype=_dtype(kwargs.get("dtype")))
        where = run.device_of(asked, unknown=run.away)
    elif name == "cpu":
        where = "cpu"
    else:
        where = run.device_of(asked) if asked is not None else f"{name}:{run.current}"
    if where == obj.device and not kwargs.get("copy"):
        return obj
    if where != "cpu" and obj.dtype is not None and obj.dtype == REFUSED.get(run.read.dtype):
        run.conflict(node, [("self", obj)])
    found = run.tensor(where, node, dim=obj.dim, dtype=obj.dtype)
    found.has_history = obj.has_history or obj.is_parameter
    found.meaning = obj.meaning
    return found


def _is_dtype(node: ast.AST) -> bool:
    """Whether the argument of a `.to` is a dtype, by its name."""
    given = node.args[0] if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords else None
    return isinstance(given, ast.Name | ast.Attribute) and ast.unparse(given).lower().endswith("dtype")


def _of_data(run: Run, obj: Described, name: str, args: list[Any], node: ast.AST) -> Any:

    if name in ("get", "pop"):
        return python._data_part(run, obj, args[0] if args and type(args[0]) in (str, int) else None, node)
    value = python._data_part(run, obj, None, node)
    return {"items": [(MISSING, value)], "values": [value], "keys": [MISSING]}[name]


def call_on_unknown(run: Run, name: str, given: Given) -> Any:
    """A method of what is not known: a move says where its result is."""
    args, kwargs, node = given
    if name in ("to", "cuda", "cpu", "xpu", "mps") and not _is_dtype(node):
        first = args[0] if args else kwargs.get("device")
        if type(first) is Described and first.role == "namespace":
            return MISSING
        made = moved(run, Described("tensor", "Tensor", None, meaning=DATA), name, given)
        made.meaning = DATA
        return made
    if name in ("submit", "map", "apply", "apply_async", "run_in_executor", "starmap") and args:
        called = next((i for i, one in enumerate(args) if type(one) is Described and one.role == "function"), None)
        if called is None:
            return MISSING
        if name in ("map", "starmap") and len(args) > called + 1:
            rows = zip(*(list(python.iterate(run, one, node, most=4)) for one in args[called + 1 :]), strict=False)
            return [functions.call(run, args[called], Given(list(row), {}, node)) for row in rows]
        value = functions.call(run, args[called], Given(args[called + 1 :], kwargs, node))
        return Described("object", "Future", meaning=("future", value))
    if name in _ABOUT or name.startswith("__"):
        return MISSING
    return python.call_unknown(run, given)


def call_function_method(run: Run, obj: Described, name: str, given: Given) -> Any:
    """A method of a function: `cached.cache_clear()`."""
    if name == "cache_clear" and type(obj.meaning) is Closure and obj.meaning.cache is not None:
        obj.meaning.cache.clear()
        return None
    return functions.call(run, obj, given) if name == "__call__" else MISSING
