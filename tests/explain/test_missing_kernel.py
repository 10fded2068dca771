"""What is suggested for an operator without a kernel is what the mended twins of the case programs do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import wherry
from wherry.explain.log import explain_log

CASES = Path(__file__).parent / "cases"
SUGGESTED = {
    "159_mps_ctc_speech": "self.ctc(log_probs.cpu(), targets.cpu(), steps, lengths).to(log_probs.device)",
    "160_mps_spectral_penalty": "torch.linalg.svd(weight, full_matrices=False).S[..., 0]",
    "161_mps_video_pooling": "F.avg_pool3d(clip, (clip.shape[-3] // 2, clip.shape[-2] // 4, clip.shape[-1] // 4))",
    "162_mps_uneven_pooling": "pool(maps.cpu()).to(maps.device)",
    "163_mps_take_logits": "logits.flatten()[flat]",
    "164_mps_shot_noise": "torch.poisson(expected.cpu()).to(expected.device)",
    "165_mps_probit_likelihood": "torch.log(torch.special.erfcx(-margin.clamp(max=-1) / 2 ** 0.5) / 2)",
    "166_mps_graph_csr": "adjacency.to_sparse() @ h",
    "167_cuda_histogram": "torch.linspace(-1.0, 1.0, bins + 1, device=activations.device)",
    "168_mps_solve_gradient": "p, l, u = torch.linalg.lu(gram)",
    "169_mps_channel_shuffle": "h.unflatten(1, (self.groups, -1)).transpose(1, 2).flatten(1, 2)",
    "170_mps_segment_mean": "index_add(0, torch.repeat_interleave(sizes, output_size=len(atoms)), atoms)",
    "171_xpu_joint_histogram": "torch.histogramdd(pairs.cpu(), [bins, bins]).hist.to(pairs.device)",
    "172_mps_fake_quantize": "y + ((y / step).round() * step - y).detach()",
}


def bare(text: str) -> str:
    return re.sub(r"\s+", "", text).replace('"', "'")


@pytest.mark.parametrize("name", SUGGESTED)
def test_the_mended_twin_does_what_is_suggested(name: str, run_program) -> None:
    case = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))

    _, error = run_program(CASES / f"{name}.py", case["device"])

    diagnosis = wherry.explain_exception(error)
    assert diagnosis is not None
    assert SUGGESTED[name] in diagnosis.fix
    assert bare(SUGGESTED[name]) in bare((CASES / f"{name}_fixed.py").read_text(encoding="utf-8"))
    assert diagnosis.siblings == ()


def diagnose(fail, program: str, device: str = "mps") -> wherry.explain.Diagnosis:
    diagnosis = wherry.explain_exception(fail(f'import torch\nDEVICE = "{device}"\n{program}', device))
    assert diagnosis is not None
    assert diagnosis.culprit is not None
    assert diagnosis.culprit.kind == "missing-kernel"
    return diagnosis


VARIABLE = "Or set PYTORCH_ENABLE_MPS_FALLBACK=1 before torch is imported, for all such operators."
FIXES = {
    # What the program takes of the result is computed there too, and several results are moved one by one.
    "x = torch.ones(3, device=DEVICE)\nvote = x.mode().values": (
        "Compute it on the CPU, which gradients pass: x.cpu().mode().values.to(x.device). " + VARIABLE
    ),
    "a = torch.eye(3, device=DEVICE)\nvalues, vectors = torch.linalg.eigh(a)": (
        "Compute it on the CPU, which gradients pass: "
        "[each.to(a.device) for each in torch.linalg.eigh(a.cpu())]. " + VARIABLE
    ),
    # An argument that is computed in the call; a factory; a method that writes into what it is called on.
    "x = torch.ones(3, device=DEVICE)\ny = torch.special.airy_ai(2 * x)": (
        "Compute it on the CPU, which gradients pass: torch.special.airy_ai((2 * x).cpu()).to(x.device). " + VARIABLE
    ),
    "steps = torch.logspace(0, 1, 5, device=DEVICE)": "Write 10 ** torch.linspace(0, 1, 5, device=DEVICE). " + VARIABLE,
    "x = torch.rand(3, device=DEVICE)\nx.logit_()": (
        "Write x.copy_(x.logit()). The result is made first, and copied. " + VARIABLE
    ),
    # Called by an object of torch's, which holds the tensor.
    "rate = torch.ones(3, device=DEVICE)\nnoise = torch.distributions.Poisson(rate)\nnoise.sample()": (
        "Compute it on the CPU: noise.rate.cpu(), and move the result back. " + VARIABLE
    ),
    # A module: the equivalent cannot be put into the line.
    "x = torch.ones(1, 1, 4, 4, 4, device=DEVICE)\npool = torch.nn.AdaptiveMaxPool3d(2)\npool(x)": (
        "In place of F.adaptive_max_pool3d(x, output_size), write F.max_pool3d(x, [n // output_size for n in "
        "x.shape[-3:]]). Only where the sizes of x are multiples of those wanted; else it has to be computed on the CPU. "
        "Or compute it on the CPU: pool(x.cpu()).to(x.device). " + VARIABLE
    ),
    # Another argument than the equivalent knows of; and an equivalent of another function is none.
    "x = torch.ones(9, 3, device=DEVICE)\nF = torch.nn.functional\nF.multi_margin_loss(x, x[:, 0].long(), margin=2)": (
        "In place of F.multi_margin_loss(x, target), write ((x - x.gather(1, target[:, None]) + 1).clamp(min=0).sum(1) - 1)"
        ".mean() / x.shape[1]. Twice the memory or more, for what is thrown away. Or compute it on the CPU: "
        "F.multi_margin_loss(x.cpu(), x[:, 0].long().cpu(), margin=2).to(x.device). " + VARIABLE
    ),
    "a = torch.eye(3, device=DEVICE)\ntorch.linalg.eigvalsh(a)": (
        "Compute it on the CPU, which gradients pass: torch.linalg.eigvalsh(a.cpu()).to(a.device). " + VARIABLE
    ),
    "net = torch.nn.Linear(2, 2).to(DEVICE)\nopt = torch.optim.Adagrad(net.parameters(), fused=True)\n"
    "net(torch.ones(2, device=DEVICE)).sum().backward()\nopt.step()": (
        "In place of torch.optim.Adagrad(parameters, fused=True), write torch.optim.Adagrad(parameters). Several kernels for "
        "each step instead of one. " + VARIABLE
    ),
    # No kernel at all on the way: `torch.linalg.lstsq(a, b).solution` is one expression.
    "a = torch.eye(3, device=DEVICE)\nx = torch.linalg.lstsq(a, a).solution": (
        "Write q, r = torch.linalg.qr(a); torch.linalg.solve_triangular(r, q.mT @ a, upper=True). For matrices of full "
        "rank with at least as many rows as columns. " + VARIABLE
    ),
}  # fmt: skip


@pytest.mark.parametrize("program", FIXES)
def test_the_fix_is_in_the_words_of_the_program(program: str, fail) -> None:
    assert diagnose(fail, program).fix == FIXES[program]


def test_a_gradient_is_traced_to_the_call_that_needs_it(fail) -> None:
    program = "a = torch.eye(3, device=DEVICE, requires_grad=True)\nloss = torch.logdet(a)\nloss.backward()"

    diagnosis = diagnose(fail, program)

    assert diagnosis.culprit is not None
    assert diagnosis.culprit.name == "torch.logdet(a)"
    assert diagnosis.why == (
        "The gradient of torch.logdet(a) (line 4) needs aten::linalg_lu_solve.out, for which mps has no kernel."
    )
    assert diagnosis.fix.startswith("Write there: torch.linalg.lu_factor(a).LU.diagonal(")


def test_a_temporary_before_a_failing_backward_pass_is_no_gradient(fail) -> None:
    program = "x = torch.ones(3, device=DEVICE)\ny = torch.take(x.neg(), x.long())"

    assert "The gradient" not in diagnose(fail, program).why


def test_the_title_names_the_operator(fail) -> None:
    title = str(diagnose(fail, "x = torch.ones(3, device=DEVICE)\nx.mode()")).splitlines()[0]

    assert title == "wherry: x is on mps:0, which has no kernel for aten::mode"


def test_cuda_has_no_variable(fail) -> None:
    program = "x = torch.ones(9, device=DEVICE)\ncounts = torch.histogram(x, 3)"

    assert "before torch is imported" not in diagnose(fail, program, "cuda").fix


def test_without_the_sources_the_line_is_enough() -> None:
    diagnosis = explain_log(
        'Traceback (most recent call last):\n  File "/gone/train.py", line 3, in <module>\n'
        "    best = scores.take(index)\n"
        "NotImplementedError: The operator 'aten::take' is not currently implemented for the MPS device. If you want"
    )

    assert diagnosis is not None
    assert diagnosis.culprit is None
    assert (
        diagnosis.fix == "Write scores.flatten()[index]. Or set PYTORCH_ENABLE_MPS_FALLBACK=1 before torch is imported."
    )


def test_a_build_without_the_device_is_another_complaint() -> None:
    diagnosis = explain_log(
        "NotImplementedError: Could not run 'aten::empty.memory_format' with arguments from the 'MPS' backend."
    )

    assert diagnosis is not None
    assert "has none" in diagnosis.why
