"""Compiled where torch.compile is mature, eager where it is not, and the reason said once.

`compile()` asks the backend of the device how far torch.compile is there (`Backend.compiles`). Where it is mature, the
result is what torch.compile makes, with a net below it: what the compiler cannot do runs eagerly. Where it is not, the
result is the model itself. Either way a `NotCompiled` warning says why, at the line of the program that it concerns.

What may surprise: a function has no device. It is compiled for the tensors it is called with, so where torch.compile is not
mature for those, that shows at the first call. `decide` holds the decision, `fallback` the net; both are free of the
backends' names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from wherry import callsite
from wherry.compile.decide import NotCompiled, name_of, said_device, why_not, why_not_here
from wherry.errors import TorchMissing

if TYPE_CHECKING:
    import torch
    from typing_extensions import TypedDict, Unpack

    class Later(TypedDict, total=False):
        """What torch.compile takes in 2.13 and did not in 2.6. A torch that has no such parameter says so."""

        name: str | None
        recompile_limit: int | None
        isolate_recompiles: bool
        shapes_spec: object


__all__ = ["NotCompiled", "compile"]

_Model = TypeVar("_Model", bound=Callable[..., Any])


@overload
def compile(  # noqa: A001 - torch's name for it
    model: _Model,
    device: str | torch.device | None = None,
    *,
    strict: bool = False,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
    **later: Unpack[Later],
) -> _Model: ...


@overload
def compile(  # noqa: A001 - torch's name for it
    model: None = None,
    device: str | torch.device | None = None,
    *,
    strict: bool = False,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
    **later: Unpack[Later],
) -> Callable[[_Model], _Model]: ...


def compile(  # noqa: A001 - torch's name for it
    model: Callable[..., Any] | None = None,
    device: str | torch.device | None = None,
    *,
    strict: bool = False,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
    **later: Unpack[Later],
) -> Any:
    """Compile a module or a function where that is mature, else return it as it is and say why.

    A compiler that fails (no C++ compiler, an operator it cannot lower, a bug) costs speed, not the run: from there on the
    model runs eagerly, and one `NotCompiled` warning tells the reason and the line. Nothing is run twice for it. What the
    model itself raises is raised as it is. `fullgraph=True` still refuses graph breaks.

    Args:
        model: A module, a function or a method. Without one, the result is a decorator.
        device: Where it will run: "cuda", "rocm", "mps:0", a `torch.device`. Left out, or "auto": where the parameters and
            buffers of a module are, and else where the tensors are that it is called with (in a rehearsal, and before any
            is seen: where `wherry.pick()` says). It need not be here.
        strict: Compile on prototypes too, and let every failure raise: torch.compile, and nothing else.
        fullgraph: Refuse graph breaks: they raise.
        dynamic: Whether sizes may differ from call to call; None finds out.
        backend: What compiles: "inductor" (the default), "aot_eager", any other name torch knows, or a callable.
        mode: A set of options by name, such as "reduce-overhead".
        options: Options of the backend, by name.
        disable: Return `model`, without a word.
        later: Parameters of torch.compile that torch 2.6 did not have.

    Returns:
        What torch.compile returns: for a module a `torch._dynamo.OptimizedModule`, which shares the parameters of `model`
        and puts "_orig_mod." before their names in its own `state_dict()`. Or `model` itself. Save and load through
        `model`, whose names are the same on every device.

    Raises:
        UnknownDevice: no backend answers to `device`.
        TypeError: `model` is nothing that can be called.
        TorchMissing: torch is not installed.

    >>> import torch
    >>> model = torch.nn.Linear(8, 2)
    >>> compiled = compile(model, backend="eager")
    >>> compiled(torch.ones(1, 8)).shape
    torch.Size([1, 2])

    Source: torch.compile (torch 2.6 to 2.14).
    """
    given = said_device(device)
    if model is None:
        return functools.partial(
            compile,
            device=device,
            strict=strict,
            fullgraph=fullgraph,
            dynamic=dynamic,
            backend=backend,
            mode=mode,
            options=options,
            disable=disable,
            **later,
        )
    if not callable(model):
        hint = f'; for a device, write device="{model}"' if isinstance(model, str) else ""
        raise TypeError(f"wherry.compile() takes a module or a function, not {model!r}{hint}")
    if disable:
        return model
    try:
        import torch
    except ModuleNotFoundError as err:
        raise TorchMissing("wherry.compile()", reason=None if err.name == "torch" else str(err)) from err
    except (ImportError, OSError) as err:
        raise TorchMissing("wherry.compile()", reason=str(err)) from err
    if strict:
        # Left out where it is not given: the default is torch's, and an older one has no word for it.
        named: dict[str, Any] = {**later} if backend is None else {**later, "backend": backend}
        return torch.compile(model, fullgraph=fullgraph, dynamic=dynamic, mode=mode, options=options, **named)

    reason = why_not(model, given) or why_not_here()
    if reason is not None:
        callsite.warn(f"{name_of(model)} runs eagerly: {reason}", NotCompiled)
        return model

    from wherry.compile.fallback import compile_with_net

    return compile_with_net(
        model, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, **later
    )
