"""unsupported-dtype: the device has no such dtype, or does not compute in it: float64 on Apple's GPUs, complex128, float8.

Why      Metal has no 64-bit floating point, and neither has Intel's Arc of the first generation, whose kernels copy, cast and
         compare it and do no more: the error comes where something is computed. Such tensors mostly appear by accident: NumPy
         computes in float64 by default, pandas and scikit-learn with it, and `torch.from_numpy` and `torch.tensor(array)`
         keep it; the default collate of a loader makes it of Python floats; `.double()` and `dtype=torch.float64` ask for
         it, and `torch.set_default_dtype(torch.float64)` for all that is made. `torch.amp.GradScaler` computes a reciprocal
         in it, except on MPS.
Fix      Make it float32 where it is made: `.float()`, `array.astype(np.float32)`, `dtype=torch.float32`; or before it moves:
         afterwards is too late. Autocast to bfloat16 needs no GradScaler.
Source   aten/src/ATen/mps/EmptyTensor.cpp; PyTorch documentation, "MPS backend"; torch/amp/grad_scaler.py, `unscale_`;
         https://github.com/intel/torch-xpu-ops/issues/1742 and https://github.com/pytorch/pytorch/issues/147731
"""

from __future__ import annotations

import ast

from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.idioms import MOVES, atom, is_factory, moves
from wherry.explain.lacked import refusing
from wherry.explain.message import HELD, Complaint
from wherry.explain.source import shortened
from wherry.explain.wide import asked, narrower, widening

_NARROWER = {"float64": "float32", "fp64": "float32", "ComplexDouble": "complex64", "fp16": "float32"}


def recognise(case: Case) -> Advice | None:
    if case.complaint is not Complaint.DTYPE:
        return None
    read, node = case.scene.message, refusing(case.scene)
    wide = read.dtype or "float64"
    narrow = _NARROWER.get(wide, "float32")
    shown = {"ComplexDouble": "complex128", "fp64": "float64"}.get(wide, wide)
    # What is there already was not refused when it came.
    holds = read.dtype in HELD
    lacks = f"in which {case.expected} does not compute" if holds else f"which {case.expected} does not have"
    if holds and (inside := _inside(case)) is not None:
        return inside
    said = None if node is None else asked(node, case.scene.here.source)
    if said is not None and isinstance(node, ast.Call):
        return Advice(f"{said} asks for {shown}, {lacks}.", _asking_less(case, node, said, narrow))
    found = widening(case, narrow)
    why = f"{case.name} is {shown}, {lacks}." + ("" if found is None else f" {found.why}")
    late = _late(case, narrow)
    before = "here" if holds or _move(case) is None else "before it moves"
    if found is None or (found.instead is None and found.leave_out is None):
        if late is None:
            return Advice(why, f"Make it {narrow} where it is made.")
        return Advice(why, f"Make it {narrow} {'where it is made, or here' if holds else before}: {late}")
    away = found.site is not None and found.site.line != case.scene.here.line
    where = f" ({case.where(found.site)})" if found.site is not None and away else ""
    if found.leave_out is not None:
        more = f", or convert {before}: {late}" if late is not None and found.leave_out.startswith(".") else ""
        return Advice(why, f"Leave out {found.leave_out}{where}{more}")
    if late is None or (not away and not holds and _move(case) is not None):
        return Advice(
            why, f"Make it {narrow} {'where it is made' if late is None else before}{where}: {late or found.instead}"
        )
    return Advice(why, f"Make it {narrow} where it is made{where}: {found.instead}, or {before}: {late}")


def _asking_less(case: Case, node: ast.Call, said: str, narrow: str) -> str:
    """For a call that itself asks for the dtype."""
    source = case.scene.here.source
    if (
        isinstance(node.func, ast.Attribute)
        and node.func.attr == "to"
        and any(
            isinstance(each, ast.Constant) and str(each.value).startswith("cpu")
            for each in (*node.args, *(keyword.value for keyword in node.keywords))
        )
    ):
        receiver = source.text(node.func.value)
        return f"Move it first, and cast it there: {receiver}.cpu().to({said.removeprefix('dtype=')})"
    if not said.startswith("."):
        return f"Ask for {narrow}: {narrower(node, source, narrow)}"
    if any(moves(part) for part in ast.walk(node)):
        return f"Stay in {narrow}: leave out {said}."
    return f"Stay in {narrow}: leave out {said}, or bring it back first: {case.name}.cpu(){said}"


def _move(case: Case) -> ast.Call | None:
    """The call in the failing line that moves the stray, where it is one that fails."""
    node, source = refusing(case.scene), case.scene.here.source
    for part in ast.walk(node) if node is not None else ():
        if (
            isinstance(part, ast.Call)
            and isinstance(part.func, ast.Attribute)
            and part.func.attr in MOVES
            and part.func.attr != "cpu"
        ):
            root = case.name if case.stray.found is None else case.stray.found.root
            if part is node or source.text(part.func.value) in (case.name, root):
                return part
    return None


def _late(case: Case, narrow: str) -> str | None:
    """The cast in the failing line, as code; None where that is too late."""
    source, move = case.scene.here.source, _move(case)
    cast = ".float()" if narrow == "float32" else f".to(torch.{narrow})"
    if move is not None:
        assert isinstance(move.func, ast.Attribute)
        what = atom(source.text(move.func.value))
        rest = f".{move.func.attr}({', '.join(source.text(a) for a in (*move.args, *move.keywords))})"
        if _is_one_of_many(case, what):  # of which others may be integers
            return f"({what}{cast} if {what}.dtype == torch.float64 else {what}){rest}"
        return f"{what}{cast}{rest}"
    node = case.scene.node
    if node is None or shortened(source.text(node)) == case.name or any(is_factory(part) for part in ast.walk(node)):
        if type(case.stray.value).__module__ == "numpy":
            return f"{case.name}.astype(np.{narrow})"
        return None
    return f"{atom(case.name)}{cast}"


def _is_one_of_many(case: Case, name: str) -> bool:
    """Whether a name stands for each part of a batch in turn: in a comprehension, a loop, or a function called in one."""
    frames = case.scene.frames
    for frame, outer in zip(frames, (*frames[1:], None), strict=True):
        node: ast.AST | None = frame.node
        while node is not None and not isinstance(node, ast.FunctionDef | ast.Lambda):
            if isinstance(node, _EACH) and any(_names(part.target, name) for part in node.generators):
                return True
            if (
                isinstance(node, ast.For)
                and _names(node.target, name)
                and ast.unparse(node.iter).endswith((".items()", ".values()"))
            ):
                return True
            node = frame.source.parent(node)
        function = frame.function
        if outer is None or function is None or frame.kind_of(name) != "argument":
            return False
        if any(other.function is function for other in frames[frames.index(frame) + 1 :]):
            return True  # it calls itself, for what is in a container
        call = outer.node
        passed = next((n for n, v in outer.leaves(call) if v is case.stray.value), None)
        name = outer.source.text(passed) if passed is not None else ""
        if not name.isidentifier():
            return False
    return False


def _names(target: ast.expr, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(target))


_EACH = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _inside(case: Case) -> Advice | None:
    """For what becomes float64 on the device, in the failing line."""
    node, here = case.stray.node, case.scene.here
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "double":
        tensor = here.source.text(node.func.value)
        return Advice(
            f"{case.name} makes {tensor} float64, in which {case.expected} does not compute.",
            f"Stay in float32: leave out .double(), or compute it on the CPU: {tensor}.cpu().double()",
        )
    failed = case.scene.node
    attribute = failed.func if isinstance(failed, ast.Call) else None
    if isinstance(attribute, ast.Attribute) and attribute.value is node and attribute.attr in ("step", "unscale_"):
        return Advice(
            f"{case.name} computes the reciprocal of its scale in float64, in which {case.expected} does not compute.",
            f"Use bfloat16, which needs no {case.name}: torch.autocast({case.expected.partition(':')[0]!r}, torch.bfloat16)",
        )
    return None


CAUSE = Cause(
    "unsupported-dtype",
    10,
    recognise,
    (
        Example(
            """
                import numpy as np
                batch = torch.from_numpy(np.ones(3))
                batch = batch.to(DEVICE)
            """,
            "batch",
            "batch = torch.from_numpy",
            device="mps",
        ),
        Example(
            """
                steps = torch.linspace(0, 1, 5, dtype=torch.float64, device=DEVICE)
            """,
            "torch.linspace(0, 1, 5, dtype=torch.float64, device=DEVICE)",
            "steps = ",
            device="mps",
        ),
        Example(
            """
                loss = torch.ones(3, device=DEVICE).mean()
                total = loss.double()
            """,
            "loss",
            "loss = ",
            device="mps",
        ),
        Example(
            """
                torch.set_default_dtype(torch.float64)
                steps = torch.arange(0.0, 1.0, 0.1)
                steps = steps.to(DEVICE)
            """,
            "steps",
            "steps = torch.arange",
            device="mps",
        ),
        Example(
            """
                from torch.utils.data import DataLoader
                for count, price in DataLoader([(1, 0.5), (2, 1.5)]):
                    count, price = count.to(DEVICE), price.to(DEVICE)
            """,
            "price",
            "for count, price",
            device="mps",
        ),
        Example(
            """
                import numpy as np
                from torch.utils.data import DataLoader, TensorDataset
                prices = torch.tensor(np.ones(3))
                for price, in DataLoader(TensorDataset(prices)):
                    price = price.to(DEVICE)
            """,
            "price",
            "prices = torch.tensor",
            device="mps",
        ),
        Example(
            """
                import numpy as np
                batch = torch.from_numpy(np.ones(3)).to(DEVICE)
                shifted = batch - 1
            """,
            "batch",
            "batch = torch.from_numpy",
            device="xpu",
            profile="a770",
        ),
        Example(
            """
                batch = torch.ones(3, dtype=torch.float64, device=DEVICE)
                total = batch.sum()
            """,
            "batch",
            "batch = ",
            device="xpu",
            profile="a770",
        ),
        Example(
            """
                model = torch.nn.Linear(2, 2, device=DEVICE)
                optimizer = torch.optim.SGD(model.parameters())
                scaler = torch.amp.GradScaler(DEVICE)
                scaler.scale(model(torch.ones(2, device=DEVICE)).sum()).backward()
                scaler.step(optimizer)
            """,
            "scaler",
            "scaler = ",
            device="xpu",
            profile="a770",
        ),
    ),
)
