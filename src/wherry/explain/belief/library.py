"""Objects that libraries hand out: loaders, distributions, packed sequences, futures, parsers, the context of a function.

Source: PyTorch documentation, "torch.utils.data", "torch.distributions", "torch.autograd.Function".
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from wherry.explain.belief import functions, objects, pytorch
from wherry.explain.belief.values import MISSING, Given, flat, foreign_bases, is_tensor, part, put
from wherry.explain.idioms import MOVES
from wherry.tree import Described, Kind

if TYPE_CHECKING:
    from wherry.explain.belief.program import Run

DISTRIBUTION, PARSER, CONTEXT = "distribution", "parser", "context"
"""What some of these objects mean."""

_DISTRIBUTIONS = {
    "Normal": ("loc", "scale"), "Laplace": ("loc", "scale"), "LogNormal": ("loc", "scale"), "Uniform": ("low", "high"),
    "MultivariateNormal": ("loc", "covariance_matrix"), "Categorical": ("probs", "logits"), "Bernoulli": ("probs", "logits"),
    "Beta": ("concentration1", "concentration0"), "Gamma": ("concentration", "rate"), "Independent": ("base_dist",),
    "TransformedDistribution": ("base_dist",), "MixtureSameFamily": ("mixture_distribution", "component_distribution"),
}  # fmt: skip


def data(last: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A name of `torch.utils.data`."""
    if last == "DataLoader":
        dataset = args[0] if args else kwargs.get("dataset", MISSING)
        return Described("object", last, meaning={"dataset": dataset, "collate": kwargs.get("collate_fn", MISSING)})
    if last == "TensorDataset":
        return Described("object", last, meaning={"tensors": args})
    if last == "random_split":
        return [args[0], args[0], args[0]] if args else MISSING
    if last in ("Subset", "ConcatDataset"):
        return flat(args[:1])[0] if args and flat(args[:1]) else MISSING
    return Described("namespace", f"torch.utils.data.{last}") if last == "Dataset" else MISSING


def distribution(run: Run, last: str, given: Given) -> Any:
    """A name of `torch.distributions`."""
    args, kwargs, node = given
    names = _DISTRIBUTIONS.get(last)
    if names is None:
        return run.meet(node, [(None, one) for one in args if is_tensor(one)]) if last[:1].islower() else MISSING
    made = Described("object", last, made=run.made(node), meaning=DISTRIBUTION)
    for name, value in [*zip(names, args, strict=False), *kwargs.items()]:
        if is_tensor(value):
            put(made, Kind.ATTRIBUTE, name, run.view(value))
        elif type(value) is Described:
            put(made, Kind.ATTRIBUTE, name, value)
    return made


def _tensors_of(obj: Described) -> list[tuple[str | None, Any]]:
    """The tensors that a distribution is built from."""
    found: list[tuple[str | None, Any]] = []
    for step, value in obj.parts:
        if is_tensor(value):
            found.append((str(step.key), value))
        elif type(value) is Described and value.meaning == obj.meaning:
            found += _tensors_of(value)
    return found


def call_object(run: Run, obj: Described, name: str, given: Given) -> Any:
    """A method of an object that is not the program's own: a distribution, a packed sequence, a future."""
    args, kwargs, node = given
    if obj.role == "class" and name == "apply" and any("Function" in str(b) for b in foreign_bases(obj)):
        return _apply(run, obj, given)
    if obj.meaning == CONTEXT:
        if name in ("save_for_backward", "save_for_forward"):
            put(obj, Kind.ATTRIBUTE, "saved_tensors", tuple(args))
        return None
    if obj.role == "class" and obj.meaning.fields is not None and name == "_make":
        return objects.instantiate(run, obj, Given(list(args[0]) if type(args[0]) in (list, tuple) else [], {}, node))
    if type(obj.meaning) is tuple and obj.meaning[:1] == ("future",):
        return obj.meaning[1] if name in ("result", "get") else MISSING
    if obj.meaning == DISTRIBUTION:
        parts = _tensors_of(obj)
        if name in ("sample", "rsample", "entropy", "sample_n"):
            return run.meet(node, parts)
        return run.meet(node, [("value", one) for one in args] + parts, scalars=False)
    if obj.name == "PackedSequence" and name in MOVES:
        data = part(obj, "data")
        made = Described("object", obj.name, made=run.made(node))
        for step, value in obj.parts:
            put(made, Kind.ATTRIBUTE, step.key, value)
        if is_tensor(data):
            put(made, Kind.ATTRIBUTE, "data", pytorch.moved(run, data, name, given))
        return made
    if obj.meaning == PARSER:
        return _parser(obj, name, given)
    if name == "_replace":
        made = Described(obj.role, obj.name, parts=list(obj.parts), definition=obj.definition, cls=obj.cls)
        for key, value in kwargs.items():
            put(made, Kind.ATTRIBUTE, key, value)
        return made
    if name == "_asdict":
        return {step.key: value for step, value in obj.parts}
    return MISSING


def _apply(run: Run, cls: Described, given: Given) -> Any:
    """`Function.apply(...)`: its forward now, its backward when somebody calls `backward`."""
    args, kwargs, node = given
    context = Described("object", "ctx", meaning=CONTEXT)
    forward = objects.bind(objects.find_in_class(cls, "forward"), cls)
    result = functions.call(run, forward, Given([context, *args], kwargs, node))
    run.pending.append((cls, context, result))
    return result


def backward(run: Run, node: ast.AST) -> None:
    """`loss.backward()`: the functions of the program's own that were applied run backwards."""
    pending, run.pending = run.pending, []
    for cls, context, result in reversed(pending):
        if cls.role == "function":
            functions.call(run, cls, Given([run.tensor(context.device, node)], {}, node))  # a hook of a tensor
            continue
        gradients = [run.tensor(one.device, node) for one in flat([result]) if is_tensor(one)]
        function = objects.bind(objects.find_in_class(cls, "backward"), cls)
        returned = functions.call(run, function, Given([context, *gradients], {}, node))
        for one in flat([returned]):
            places = [one.device, gradients[0].device] if is_tensor(one) and gradients else [None]
            if None not in places and len(set(places)) > 1:
                run.conflict(node, [("grad", one)])


def _parser(obj: Described, name: str, given: Given) -> Any:
    """An `argparse` parser: an argument has its default, unless that decides about the device, which the error tells."""
    args, kwargs, _ = given
    if name == "add_argument" and args and type(args[-1]) is str:
        key = kwargs.get("dest", args[-1].lstrip("-").replace("-", "_"))
        value = kwargs.get("default", MISSING)
        if type(key) is str and type(value) in (int, float) and type(value) is not bool:
            put(obj, Kind.ATTRIBUTE, key, value)
        return MISSING
    if name == "parse_args":
        return Described("object", "Namespace", parts=list(obj.parts))
    return obj if name.startswith("add_") else MISSING
