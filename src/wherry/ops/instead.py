"""What to write in place of an operator that a device has no kernel for: `of("take")` says `x.flatten()[index]`.

An entry holds two pieces of code with the same answer, and tests/ops/test_instead.py runs both: on the host, where they must
agree, and in a rehearsal of every backend without the operator, where the first must raise and the second must run. So what
is suggested here does not fail in its turn. Where nothing else computes the same, the honest answer is the CPU, and the entry
says so (`through_cpu`).

`in_words_of(call)` finds the entry for a call that a program has written, and puts the program's own expressions into it.

Loads without torch: `wherry explain LOG` reads it.
"""

# ruff: noqa: E501 - an entry of the table is a line

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

THROUGH_CPU = (
    "Gradients flow through it. The bytes cross to the host and back at every call, and the host waits for them."
)
"""What it costs to compute something on the CPU."""


@dataclass(frozen=True, slots=True)
class Instead:
    """An equivalent.

    Attributes:
        operators: The names it is found by, without overload: what has no kernel ("_linalg_svd"), and what a program calls
            that is made of it ("linalg_svdvals").
        in_place_of: What a program writes. A name in it stands for any expression but a tuple.
        write: What to write, in the same names: an expression, or statements of which the last is one.
        note: How it differs in values, gradients or cost; "" where it does not.
        backward: Whether it is only the gradient of `in_place_of` that needs the operator.
    """

    operators: tuple[str, ...]
    in_place_of: str
    write: str
    note: str = ""
    backward: bool = False

    @property
    def through_cpu(self) -> bool:
        """Whether it computes on the CPU and moves the result back."""
        return ".cpu()" in self.write

    @property
    def function(self) -> str:
        """The name of what a program calls: "svdvals"."""
        node: ast.AST = _pattern(self.in_place_of)
        while not isinstance(node, ast.Call):
            node = next(ast.iter_child_nodes(node))
        return called(node) or ""

    def to_json(self) -> dict[str, object]:
        return {
            "in_place_of": self.in_place_of,
            "write": self.write,
            "note": self.note,
            "backward": self.backward,
            "through_cpu": self.through_cpu,
        }


def of(operator: str) -> tuple[Instead, ...]:
    """The equivalents that are known for an operator, those that stay on the device first.

    >>> of("aten::take")[0].write
    'x.flatten()[index]'

    Args:
        operator: "take", or as an error names it: "aten::linalg_lu_solve.out".
    """
    return _by_operator().get(packet(operator), ())


def packet(operator: str) -> str:
    """The name of an operator without namespace and overload: "linalg_lu_solve" of "aten::linalg_lu_solve.out"."""
    return operator.rpartition("::")[2].partition(".")[0]


def in_words_of(call: ast.expr, *, operator: str | None = None, backward: bool = False) -> tuple[Instead, str] | None:
    """The equivalent of an expression, in its own words; None where none is known.

    >>> in_words_of(ast.parse("torch.take(scores, picked[0])", mode="eval").body)[1]
    'scores.flatten()[picked[0]]'

    Args:
        call: The expression.
        operator: What has no kernel, where that is known: only its equivalents count.
        backward: Whether its gradient is what fails.
    """
    for entry in TABLE if operator is None else of(operator):
        if entry.backward is backward:
            found = _bound(_pattern(entry.in_place_of), call)
            if found is not None and not _runs_twice(entry.write, found):
                return entry, _put_into(entry.write, found)
    return None


_CHEAP = frozenset(
    "abs contiguous detach exp flatten float half log log_softmax long mean permute reshape sigmoid softmax squeeze sum t "
    "transpose unsqueeze view".split()
)
"""Methods of a tensor that may as well be called twice."""


def _runs_twice(write: str, found: Mapping[str, ast.expr]) -> bool:
    """Whether a call of the program's would stand in the code more than once: it may draw, count, train or take long."""
    used = [part.id for part in ast.walk(ast.parse(write)) if isinstance(part, ast.Name)]
    return any(used.count(name) > 1 and any(map(_is_dear, ast.walk(each))) for name, each in found.items())


def _is_dear(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and not (
        isinstance(node.func, ast.Attribute) and node.func.attr in _CHEAP and not _is_namespace(node.func.value)
    )


@cache
def _by_operator() -> dict[str, tuple[Instead, ...]]:
    found: dict[str, list[Instead]] = {}
    for entry in TABLE:
        for operator in entry.operators:
            found.setdefault(operator, []).append(entry)
    return {name: tuple(sorted(entries, key=lambda each: each.through_cpu)) for name, entries in found.items()}


# -- one expression in the words of another

_NAMESPACES = frozenset({"torch", "th", "nn", "F", "LA", "linalg", "special", "functional", "sparse"})
"""What a function of torch's is called through; `x.take(i)` is a method, `F.pdist(x)` is not."""


@cache
def _pattern(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _bound(pattern: ast.expr, node: ast.expr) -> dict[str, ast.expr] | None:
    """What the names of a pattern stand for in an expression; None where it is another one."""
    found: dict[str, ast.expr] = {}
    return found if _matches(pattern, node, found) else None


def _matches(pattern: ast.expr | None, node: ast.expr | None, found: dict[str, ast.expr]) -> bool:
    if isinstance(pattern, ast.Name) and pattern.id not in _NAMESPACES:
        if node is None or isinstance(node, ast.Tuple | ast.List | ast.Starred | ast.GeneratorExp):
            return False
        known = found.setdefault(pattern.id, node)
        return known is node or ast.dump(known) == ast.dump(node)
    if isinstance(pattern, ast.Call) and isinstance(node, ast.Call):
        return _calls_alike(pattern, node, found)
    if isinstance(pattern, ast.Attribute) and isinstance(node, ast.Attribute):
        return pattern.attr == node.attr and _matches(pattern.value, node.value, found)
    if isinstance(pattern, ast.Constant) and isinstance(node, ast.Constant):
        return type(pattern.value) is type(node.value) and pattern.value == node.value
    if isinstance(pattern, ast.Tuple) and isinstance(node, ast.Tuple | ast.List):
        pairs = zip(pattern.elts, node.elts, strict=False)
        return len(pattern.elts) == len(node.elts) and all(_matches(p, n, found) for p, n in pairs)
    if isinstance(pattern, ast.Starred) and isinstance(node, ast.Starred):
        return _matches(pattern.value, node.value, found)
    if isinstance(pattern, ast.BinOp) and isinstance(node, ast.BinOp):
        alike = type(pattern.op) is type(node.op)
        return alike and _matches(pattern.left, node.left, found) and _matches(pattern.right, node.right, found)
    return False


def _calls_alike(pattern: ast.Call, node: ast.Call, found: dict[str, ast.expr]) -> bool:
    """Whether two calls are of one function, with arguments alike: by position, or by the name that the pattern gives."""
    if called(pattern) is None or called(pattern) != called(node):
        return False
    asked, given = _arguments(pattern), _arguments(node)
    named = {keyword.arg: keyword.value for keyword in node.keywords}
    wanted = {keyword.arg: keyword.value for keyword in pattern.keywords}
    for position, each in enumerate(asked):
        if position < len(given):
            one = given[position]
        elif isinstance(each, ast.Name) and each.id in named:
            one = named.pop(each.id)
        else:
            return False
        if not _matches(each, one, found):
            return False
    position = len(asked)
    for name, each in wanted.items():
        if name in named:
            one = named.pop(name)
        else:  # keywords are written in the order of the function's parameters
            one = given[position] if position < len(given) else None
            position += 1
        if not _matches(each, one, found):
            return False
    return not named and len(given) <= position


def called(call: ast.Call) -> str | None:
    """The name of the function that is called: "svdvals" for `torch.linalg.svdvals(a)` and for `LA.svdvals(a)`."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else None


def _arguments(call: ast.Call) -> list[ast.expr]:
    """The arguments by position; of a method, what it is called on is the first."""
    if isinstance(call.func, ast.Attribute) and not _is_namespace(call.func.value):
        return [call.func.value, *call.args]
    return list(call.args)


def _is_namespace(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in _NAMESPACES


class _Put(ast.NodeTransformer):
    """Puts expressions in the place of names, and leaves names of its own alone that those use otherwise."""

    def __init__(self, found: Mapping[str, ast.expr], own: set[str]) -> None:
        self.found = found
        used = {part.id for each in found.values() for part in ast.walk(each) if isinstance(part, ast.Name)}
        self.renamed = {name: f"{name}_" for name in own & used}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.renamed:
            return ast.Name(self.renamed[node.id], node.ctx)
        return copy.deepcopy(self.found[node.id]) if node.id in self.found else node


def _put_into(write: str, found: Mapping[str, ast.expr]) -> str:
    tree = ast.parse(write)
    own = {part.id for part in ast.walk(tree) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    put = _Put(found, own)
    return "; ".join(" ".join(ast.unparse(put.visit(statement)).split()) for statement in tree.body)


# -- the table


def _entries(text: str, note: str = "", *, backward: bool = False) -> Iterator[Instead]:
    """Entries, one a line: `operators | in_place_of | write`."""
    for line in filter(None, map(str.strip, text.splitlines())):
        operators, in_place_of, write = (part.strip() for part in line.split(" | "))
        yield Instead(tuple(operators.split()), in_place_of, write.replace("; ", "\n"), note, backward)


_SVD = "Of singular values alone nothing is cheaper: torch.linalg.svd goes through the CPU by itself where it has no kernel."
_NO_EQUIVALENT = f"Nothing else computes the same. {THROUGH_CPU}"

TABLE: tuple[Instead, ...] = (
    # Indexing.
    *_entries("""
        take | x.take(index) | x.flatten()[index]
        channel_shuffle native_channel_shuffle | F.channel_shuffle(x, groups) | x.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)
        put put_ | x.put(index, values) | x.flatten().index_put((index,), values).view_as(x)
    """),
    *_entries(
        """
        put put_ | x.put_(index, values, accumulate=True) | x.view(-1).index_put_((index,), values, accumulate=True)
        put put_ | x.put_(index, values) | x.view(-1).index_put_((index,), values)
    """,
        "x must be contiguous; what is returned is flat.",
    ),
    *_entries(
        """
        narrow_copy | torch.narrow_copy(x, dim, start, length, out=out) | out.copy_(x.narrow(dim, start, length))
        max | torch.max(x, out=out) | out.copy_(x.max())
        min | torch.min(x, out=out) | out.copy_(x.min())
        std | torch.std(x, dim, out=out) | out.copy_(x.std(dim))
        var | torch.var(x, dim, out=out) | out.copy_(x.var(dim))
        logit_ logit | x.logit_() | x.copy_(x.logit())
    """,
        "The result is made first, and copied.",
    ),
    # Pooling.
    *_entries(
        """
        _adaptive_avg_pool3d adaptive_avg_pool3d | F.adaptive_avg_pool3d(x, (d, h, w)) | F.avg_pool3d(x, (x.shape[-3] // d, x.shape[-2] // h, x.shape[-1] // w))
        _adaptive_avg_pool3d adaptive_avg_pool3d | F.adaptive_avg_pool3d(x, output_size) | F.avg_pool3d(x, [n // output_size for n in x.shape[-3:]])
        adaptive_max_pool3d | F.adaptive_max_pool3d(x, (d, h, w)) | F.max_pool3d(x, (x.shape[-3] // d, x.shape[-2] // h, x.shape[-1] // w))
        adaptive_max_pool3d | F.adaptive_max_pool3d(x, output_size) | F.max_pool3d(x, [n // output_size for n in x.shape[-3:]])
    """,
        "Only where the sizes of x are multiples of those wanted; else it has to be computed on the CPU.",
    ),
    *_entries(
        """
        _adaptive_avg_pool2d adaptive_avg_pool1d | F.adaptive_avg_pool1d(x, output_size) | torch.stack([x[..., i * x.shape[-1] // output_size : -(-(i + 1) * x.shape[-1] // output_size)].mean(-1) for i in range(output_size)], -1)
        _adaptive_avg_pool2d adaptive_avg_pool2d | F.adaptive_avg_pool2d(x, output_size) | m, n = x.shape[-2:]; torch.stack([x[..., i * m // output_size : -(-(i + 1) * m // output_size), j * n // output_size : -(-(j + 1) * n // output_size)].mean((-2, -1)) for i in range(output_size) for j in range(output_size)], -1).unflatten(-1, (output_size, output_size))
        _adaptive_avg_pool2d adaptive_avg_pool2d | F.adaptive_avg_pool2d(x, (h, w)) | m, n = x.shape[-2:]; torch.stack([x[..., i * m // h : -(-(i + 1) * m // h), j * n // w : -(-(j + 1) * n // w)].mean((-2, -1)) for i in range(h) for j in range(w)], -1).unflatten(-1, (h, w))
    """,
        "Two kernels for each element of a map, so for small ones. Where the sizes of x are multiples of those wanted, it runs as it is.",
    ),
    *_entries(
        """
        fractional_max_pool2d | F.fractional_max_pool2d(x, kernel_size, output_size=output_size) | F.fractional_max_pool2d(x.cpu(), kernel_size, output_size=output_size).to(x.device)
        fractional_max_pool3d | F.fractional_max_pool3d(x, kernel_size, output_size=output_size) | F.fractional_max_pool3d(x.cpu(), kernel_size, output_size=output_size).to(x.device)
    """,
        f"The regions are drawn by the CPU's generator. {THROUGH_CPU}",
    ),
    *_entries(
        """
        adaptive_max_pool2d | F.adaptive_max_pool2d(x, output_size) | F.adaptive_max_pool2d(x.cpu(), output_size).to(x.device)
        _upsample_lanczos2d_aa | F.interpolate(x, size=size, mode="lanczos", antialias=True) | F.interpolate(x.cpu(), size=size, mode="lanczos", antialias=True).to(x.device)
    """,
        _NO_EQUIVALENT,
    ),
    *_entries(
        """
        _upsample_bilinear2d_aa_backward | F.interpolate(x, size=size, mode="bilinear", antialias=True) | F.interpolate(x.cpu(), size=size, mode="bilinear", antialias=True).to(x.device)
        _upsample_bicubic2d_aa_backward | F.interpolate(x, size=size, mode="bicubic", antialias=True) | F.interpolate(x.cpu(), size=size, mode="bicubic", antialias=True).to(x.device)
    """,
        f"Only the gradient is missing: without one, it runs as it is. {THROUGH_CPU}",
        backward=True,
    ),
    # Losses and activations.
    *_entries(
        """
        multi_margin_loss | F.multi_margin_loss(x, target) | ((x - x.gather(1, target[:, None]) + 1).clamp(min=0).sum(1) - 1).mean() / x.shape[1]
        pdist _pdist_forward | F.pdist(x) | torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")[tuple(torch.triu_indices(len(x), len(x), 1, device=x.device))]
    """,
        "Twice the memory or more, for what is thrown away.",
    ),
    *_entries("""
        rrelu rrelu_with_noise | F.rrelu(x) | F.leaky_relu(x, 11 / 48)
        rrelu rrelu_with_noise | F.rrelu(x, lower, upper) | F.leaky_relu(x, (lower + upper) / 2)
    """),
    *_entries(
        """
        rrelu rrelu_with_noise | F.rrelu(x, lower, upper, training=True) | torch.where(x < 0, x * torch.empty_like(x).uniform_(lower, upper), x)
    """,
        "Other random numbers, of the same distribution.",
    ),
    *_entries("""
        _masked_softmax | torch._masked_softmax(x, mask, dim) | x.masked_fill(mask, float("-inf")).softmax(dim)
        _addmm_activation | torch._addmm_activation(bias, x, weight) | torch.addmm(bias, x, weight).relu()
    """),
    *_entries(
        """
        _ctc_loss ctc_loss | F.ctc_loss(log_probs, targets, input_lengths, target_lengths) | F.ctc_loss(log_probs.cpu(), targets.cpu(), input_lengths, target_lengths).to(log_probs.device)
        multilabel_margin_loss multilabel_margin_loss_forward | F.multilabel_margin_loss(x, target) | F.multilabel_margin_loss(x.cpu(), target.cpu()).to(x.device)
    """,
        _NO_EQUIVALENT,
    ),
    # Reductions, counting, ranges.
    *_entries("""
        segment_reduce | torch.segment_reduce(x, "sum", lengths=lengths) | x.new_zeros(len(lengths), *x.shape[1:]).index_add(0, torch.repeat_interleave(lengths, output_size=len(x)), x)
        segment_reduce | torch.segment_reduce(x, "mean", lengths=lengths) | (x.new_zeros(len(lengths), *x.shape[1:]).index_add(0, torch.repeat_interleave(lengths, output_size=len(x)), x).T / lengths).T
    """),
    *_entries(
        """
        segment_reduce | torch.segment_reduce(x, "max", lengths=lengths) | x.new_full((len(lengths), *x.shape[1:]), float("-inf")).index_reduce(0, torch.repeat_interleave(lengths, output_size=len(x)), x, "amax")
    """,
        "It warns once that index_reduce is in beta.",
    ),
    *_entries("""
        logspace | torch.logspace(start, end, steps, device=device) | 10 ** torch.linspace(start, end, steps, device=device)
        logspace | torch.logspace(start, end, steps, base, device=device) | base ** torch.linspace(start, end, steps, device=device)
        heaviside | torch.heaviside(x, values) | torch.where(x == 0, values, (x > 0).to(x.dtype))
    """),
    *_entries(
        """
        histogram | torch.histogram(x, bins, range=(low, high)) | torch.histc(x, bins, low, high), torch.linspace(low, high, bins + 1, device=x.device)
        histogram | torch.histogram(x, bins) | torch.histc(x, bins), torch.linspace(x.min(), x.max(), bins + 1, device=x.device)
    """,
        "Without weights. `bins` is a number.",
    ),
    *_entries(
        """
        histogramdd _histogramdd_bin_edges _histogramdd_from_bin_cts | torch.histogramdd(x, bins).hist | torch.histogramdd(x.cpu(), bins).hist.to(x.device)
        mode | x.mode() | [each.to(x.device) for each in x.cpu().mode()]
        frexp | torch.frexp(x) | [each.to(x.device) for each in torch.frexp(x.cpu())]
        hash_tensor | torch.hash_tensor(x) | torch.hash_tensor(x.cpu()).to(x.device)
        from_file | torch.from_file(path, size=size, device=device) | torch.from_file(path, size=size).to(device)
    """,
        _NO_EQUIVALENT,
    ),
    *_entries(
        """
        poisson | torch.poisson(rate) | torch.poisson(rate.cpu()).to(rate.device)
        binomial | torch.binomial(count, prob) | torch.binomial(count.cpu(), prob.cpu()).to(prob.device)
    """,
        f"The numbers are drawn by the CPU's generator. {THROUGH_CPU}",
    ),
    # Linear algebra.
    *_entries(
        """
        _linalg_svd linalg_svdvals | torch.linalg.svdvals(a) | torch.linalg.svd(a, full_matrices=False).S
        _linalg_eigh linalg_pinv | torch.linalg.pinv(a, hermitian=True) | torch.linalg.pinv(a)
        _linalg_svd linalg_cond | torch.linalg.cond(a) | s = torch.linalg.svd(a, full_matrices=False).S; s[..., 0] / s[..., -1]
        _linalg_svd linalg_matrix_norm | torch.linalg.matrix_norm(a, ord=2) | torch.linalg.svd(a, full_matrices=False).S[..., 0]
        _linalg_svd linalg_matrix_norm | torch.linalg.matrix_norm(a, ord="nuc") | torch.linalg.svd(a, full_matrices=False).S.sum(-1)
        _linalg_svd linalg_norm | torch.linalg.norm(a, ord=2) | torch.linalg.svd(a, full_matrices=False).S[..., 0]
        _linalg_svd linalg_norm norm nuclear_norm | torch.linalg.norm(a, ord="nuc") | torch.linalg.svd(a, full_matrices=False).S.sum(-1)
        _linalg_svd linalg_matrix_rank | torch.linalg.matrix_rank(a) | s = torch.linalg.svd(a, full_matrices=False).S; (s > s[..., :1] * max(a.shape[-2:]) * torch.finfo(s.dtype).eps).sum(-1)
    """,
        _SVD,
    ),
    *_entries(
        """
        linalg_lstsq | torch.linalg.lstsq(a, b).solution | q, r = torch.linalg.qr(a); torch.linalg.solve_triangular(r, q.mT @ b, upper=True)
    """,
        "For matrices of full rank with at least as many rows as columns.",
    ),
    *_entries(
        """
        linalg_lu_solve lu_solve | torch.linalg.lu_solve(LU, pivots, b) | p, l, u = torch.lu_unpack(LU, pivots); torch.linalg.solve_triangular(u, torch.linalg.solve_triangular(l, p.mT @ b, upper=False, unitriangular=True), upper=True)
        linalg_ldl_solve linalg_ldl_factor linalg_ldl_factor_ex | torch.linalg.ldl_solve(*torch.linalg.ldl_factor(a), b) | p, l, u = torch.linalg.lu(a); torch.linalg.solve_triangular(u, torch.linalg.solve_triangular(l, p.mT @ b, upper=False, unitriangular=True), upper=True)
        ormqr | torch.ormqr(a, tau, x) | torch.linalg.householder_product(a, tau) @ x
    """,
        "For square matrices.",
    ),
    *_entries("""
        geqrf | torch.linalg.householder_product(*torch.geqrf(a)) | torch.linalg.qr(a).Q
    """),
    *_entries(
        """
        linalg_lu_solve linalg_solve linalg_solve_ex _linalg_solve_ex | torch.linalg.solve(a, b) | p, l, u = torch.linalg.lu(a); torch.linalg.solve_triangular(u, torch.linalg.solve_triangular(l, p.mT @ b, upper=False, unitriangular=True), upper=True)
    """,
        "Only the gradient is missing: without one, it runs as it is. b is a matrix.",
        backward=True,
    ),
    *_entries(
        """
        linalg_lu_solve linalg_det _linalg_det det | torch.linalg.det(a) | lu, pivots = torch.linalg.lu_factor(a); lu.diagonal(dim1=-2, dim2=-1).prod(-1) * (1 - 2 * ((pivots != torch.arange(1, a.shape[-1] + 1, device=a.device)).sum(-1) % 2))
    """,
        "Only the gradient is missing: without one, it runs as it is. A singular matrix has none this way.",
        backward=True,
    ),
    *_entries(
        """
        linalg_lu_solve linalg_slogdet _linalg_slogdet slogdet | torch.linalg.slogdet(a).logabsdet | torch.linalg.lu_factor(a).LU.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1)
        linalg_lu_solve logdet | torch.logdet(a) | torch.linalg.lu_factor(a).LU.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1)
    """,
        "Only the gradient is missing: without one, it runs as it is. The logarithm is that of the determinant's absolute value.",
        backward=True,
    ),
    *_entries(
        """
        _int_mm | torch._int_mm(a, b) | (a.float() @ b.float()).int()
    """,
        "Exact up to an inner size of 1024, below which no sum of products of int8 exceeds 2**24.",
    ),
    *_entries(
        """
        linalg_eig | torch.linalg.eig(a) | [each.to(a.device) for each in torch.linalg.eig(a.cpu())]
        linalg_eig linalg_eigvals _linalg_eigvals | torch.linalg.eigvals(a) | torch.linalg.eigvals(a.cpu()).to(a.device)
        _linalg_eigh linalg_eigh | torch.linalg.eigh(a) | [each.to(a.device) for each in torch.linalg.eigh(a.cpu())]
        _linalg_eigh linalg_eigvalsh | torch.linalg.eigvalsh(a) | torch.linalg.eigvalsh(a.cpu()).to(a.device)
        _linalg_eigh linalg_matrix_rank | torch.linalg.matrix_rank(a, hermitian=True) | torch.linalg.matrix_rank(a.cpu(), hermitian=True).to(a.device)
        linalg_matrix_exp matrix_exp | torch.linalg.matrix_exp(a) | torch.linalg.matrix_exp(a.cpu()).to(a.device)
        linalg_ldl_factor_ex linalg_ldl_factor | torch.linalg.ldl_factor(a) | [each.to(a.device) for each in torch.linalg.ldl_factor(a.cpu())]
        geqrf | torch.geqrf(a) | [each.to(a.device) for each in torch.geqrf(a.cpu())]
    """,
        _NO_EQUIVALENT,
    ),
    # Special functions.
    *_entries(
        """
        special_ndtri | torch.special.ndtri(x) | 2**0.5 * torch.erfinv(2 * x - 1)
    """,
        "Less accurate near 0 and 1.",
    ),
    *_entries("""
        special_log_ndtr | torch.special.log_ndtr(x) | torch.where(x < -1, torch.log(torch.special.erfcx(-x.clamp(max=-1) / 2**0.5) / 2) - x**2 / 2, torch.log1p(-torch.erfc(x.clamp(min=-1) / 2**0.5) / 2))
    """),
    *_entries(
        """
        special_airy_ai | torch.special.airy_ai(x) | torch.special.airy_ai(x.cpu()).to(x.device)
        special_legendre_polynomial_p | torch.special.legendre_polynomial_p(x, n) | torch.special.legendre_polynomial_p(x.cpu(), n).to(x.device)
        special_laguerre_polynomial_l | torch.special.laguerre_polynomial_l(x, n) | torch.special.laguerre_polynomial_l(x.cpu(), n).to(x.device)
    """,
        _NO_EQUIVALENT,
    ),
    # Quantized and sparse tensors, optimizers.
    *_entries(
        """
        quantize_per_tensor | torch.quantize_per_tensor(x, scale, zero_point, torch.qint8).int_repr() | ((x / scale).round() + zero_point).clamp(-128, 127).to(torch.int8)
        quantize_per_tensor | torch.quantize_per_tensor(x, scale, zero_point, torch.quint8).int_repr() | ((x / scale).round() + zero_point).clamp(0, 255).to(torch.uint8)
    """,
        "The numbers without the type: scale and zero point are to be kept beside them.",
    ),
    *_entries(
        """
        fake_quantize_per_tensor_affine fake_quantize_per_tensor_affine_cachemask | torch.fake_quantize_per_tensor_affine(x, scale, zero_point, low, high) | y = x.clamp((low - zero_point) * scale, (high - zero_point) * scale); y + ((y / scale).round() * scale - y).detach()
    """,
        "Up to rounding. The gradient ends at the last step, not half a step beyond it.",
    ),
    *_entries(
        """
        fake_quantize_per_channel_affine fake_quantize_per_channel_affine_cachemask | torch.fake_quantize_per_channel_affine(x, scale, zero_point, axis, low, high) | torch.fake_quantize_per_channel_affine(x.cpu(), scale.cpu(), zero_point.cpu(), axis, low, high).to(x.device)
        _spdiags | torch.sparse.spdiags(diagonals, offsets, shape) | torch.sparse.spdiags(diagonals.cpu(), offsets.cpu(), shape).to(diagonals.device)
    """,
        _NO_EQUIVALENT,
    ),
    *_entries(
        """
        dequantize | x.dequantize() | x.float()
    """,
        "No quantized tensor can be there, so it is a plain one.",
    ),
    *_entries(
        """
        _to_sparse_csr to_sparse_csr _convert_indices_from_coo_to_csr | x.to_sparse_csr() @ y | x.to_sparse() @ y
        _to_sparse_csc to_sparse_csc | x.to_sparse_csc() @ y | x.to_sparse() @ y
        _to_sparse_bsr to_sparse_bsr | x.to_sparse_bsr(blocks) @ y | x.to_sparse() @ y
    """,
        "The layout is COO, whose products are slower than those of CSR.",
    ),
    *_entries(
        """
        _fused_adagrad_ | torch.optim.Adagrad(parameters, fused=True) | torch.optim.Adagrad(parameters)
    """,
        "Several kernels for each step instead of one.",
    ),
)
