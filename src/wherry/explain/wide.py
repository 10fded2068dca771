"""How something became float64: which expression made it so, by what accident, and the same expression in float32.

Nobody says float64 most of the time. `widening(case, narrow)` looks at the expression that a stray comes from, and at what
that is computed from: it is asked for by name, it is the default dtype, it is what an array of NumPy has, or a loader makes it
of Python floats. Read off the source alone.

Source: PyTorch documentation, "torch.tensor" and "torch.set_default_dtype"; torch/utils/data/_utils/collate.py,
`collate_float_fn`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from wherry.explain.case import Case
from wherry.explain.handed import ARRAY, loop_of
from wherry.explain.idioms import is_factory
from wherry.explain.source import Site, Source
from wherry.explain.written import Origin, Trail, Where


@dataclass(frozen=True, slots=True)
class Widening:
    """What made something float64.

    Attributes:
        why: A sentence.
        instead: The expression in the narrower dtype, as code; None where there is none to write.
        site: Where it stands.
        leave_out: What to leave out instead, as code, or None.
    """

    why: str
    instead: str | None = None
    site: Site | None = None
    leave_out: str | None = None


NUMPY = (
    "NumPy, and with it pandas and scikit-learn, computes in float64 unless told otherwise, and torch keeps the dtype of its "
    "arrays and scalars."
)
_COLLATE = "The default collate of a loader makes float64 of Python floats, and keeps the dtype of arrays."

_OF_ARRAYS = ("from_numpy", "tensor", "as_tensor", "asarray")
_WIDE = re.compile(r"(?:^|\.)(?:float64|float_|double|complex128|cdouble)$|^float$|^['\"](?:float64|double|f8|d)['\"]$")
_DEFAULT = ("set_default_dtype", "set_default_tensor_type")
_MOST = 160  # characters of code in a sentence


def widening(case: Case, narrow: str) -> Widening | None:
    """How a stray became as wide as it is; None where that is not to be seen.

    Args:
        case: The stray, with its origin.
        narrow: The dtype to say instead: "float32".
    """
    origin = case.origin
    if origin is None or origin.node is None:
        return None
    if loop_of(origin) is not None:
        return Widening(_COLLATE)
    found = _asked_in(origin, narrow) or _of_array(origin, narrow)
    if found is not None and found.why != NUMPY:
        return found
    mentions = any(isinstance(part, ast.Name) and part.id in ("np", "numpy") for part in ast.walk(origin.node))
    by_default = None if mentions else _by_default(case, origin)
    return by_default or found or _computed_of(case, origin, narrow)


def asked(node: ast.AST, source: Source) -> str | None:
    """The part of a call by which it asks for float64, as written: "dtype=torch.float64", ".double()"; or None."""
    if not isinstance(node, ast.Call):
        return None
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if name in ("double", "cdouble") and not node.args:
        return f".{name}()"
    if name == "DoubleTensor":
        return "DoubleTensor"
    given = [keyword.value for keyword in node.keywords if keyword.arg == "dtype"]
    for value in (*given, *(node.args if name in ("to", "type", "astype") else ())):
        text = source.text(value)
        if _WIDE.search(text) or text.endswith("DoubleTensor"):
            return f"dtype={text}" if value in given else text
    return None


def narrower(node: ast.Call, source: Source, narrow: str) -> str:
    """A call that asks for float64, asking for less."""
    said, text = asked(node, source), " ".join(source.text(node).split())
    assert said is not None
    if said.startswith("."):
        assert isinstance(node.func, ast.Attribute)
        return " ".join(source.text(node.func.value).split())
    bare = said.removeprefix("dtype=")
    if bare.endswith("DoubleTensor"):
        less = bare.replace("DoubleTensor", "FloatTensor")
    elif bare[0] in "'\"":
        less = f"{bare[0]}{narrow}{bare[0]}"
    else:
        namespace = bare.rpartition(".")[0] or "np"
        less = f"{namespace}.{narrow}"
    return text.replace(said, said.replace(bare, less))


def _short(text: str) -> str | None:
    return text if len(text) <= _MOST else None


def _site(node: ast.AST, origin: Origin) -> Site:
    return Site(origin.source.file, getattr(node, "lineno", origin.site.line), origin.site.function)


def _asked_in(origin: Origin, narrow: str) -> Widening | None:
    """It is asked for by name, in the expression that makes it."""
    assert origin.node is not None
    for part in ast.walk(origin.node):
        said = asked(part, origin.source)
        if said is None:
            continue
        assert isinstance(part, ast.Call)
        instead, leave_out = _short(narrower(part, origin.source, narrow)), None
        if said.startswith("."):
            instead, leave_out = None, said
        return Widening(f"{said} asks for it.", instead, _site(part, origin), leave_out)
    return None


def _of_array(origin: Origin, narrow: str) -> Widening | None:
    """It is what an array has that it is made of."""
    assert origin.node is not None
    source = origin.source
    if origin.how == ARRAY and isinstance(origin.node, ast.expr):
        return Widening(NUMPY, _short(f"{source.text(origin.node)}.astype(np.{narrow})"), origin.site)
    for call in _factories(origin.node):
        assert isinstance(call.func, ast.Attribute)
        if call.func.attr not in _OF_ARRAYS or any(keyword.arg in ("dtype", None) for keyword in call.keywords):
            continue
        text = " ".join(source.text(call).split())
        array = call.args[0] if call.args else None
        if array is not None and ast.unparse(array).endswith(".to_numpy()"):
            given = " ".join(source.text(array).split())
            text = text.replace(given, f'{given[:-1]}dtype="{narrow}")')
        elif call.func.attr != "from_numpy":
            text = f"{text[:-1].rstrip().removesuffix(',')}, dtype=torch.{narrow})"
        else:
            text += ".float()" if narrow == "float32" else f".to(torch.{narrow})"
        return Widening(NUMPY, _short(text), _site(call, origin))
    return None


def _factories(node: ast.AST) -> Iterator[ast.Call]:
    """The calls in an expression that make a tensor of something else, the outermost first."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and (is_factory(part) or ast.unparse(part.func) == "torch.asarray"):
            yield part


def _by_default(case: Case, origin: Origin) -> Widening | None:
    """It is the dtype of whatever is made without one."""
    sources = {id(source): source for source in (*(frame.source for frame in case.scene.frames), origin.source)}
    for source in sources.values():
        for call in source.calls(None, *_DEFAULT):
            text = source.text(call.args[0]) if call.args else ""
            if _WIDE.search(text) or "DoubleTensor" in text:
                said = source.text(call)
                site = Site(source.file, call.lineno)
                return Widening(
                    f"{said} ({case.where(site)}) makes it the dtype of all that asks for none.", None, site, said
                )
    return None


def _computed_of(case: Case, origin: Origin, narrow: str) -> Widening | None:
    """What it is computed from was asked for so, or came of an array."""
    at = Where(origin.source, origin.function, origin.site.line)
    trail = Trail(case.scene.frames)
    assert origin.node is not None
    for name in [part.id for part in ast.walk(origin.node) if isinstance(part, ast.Name)][:8]:
        earlier = trail.of_name(name, at)
        if earlier is None or earlier.node is None:
            continue
        found = _asked_in(earlier, narrow) or _of_array(earlier, narrow)
        if found is not None:
            return found
    return None
