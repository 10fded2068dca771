"""torch.cuda answers a program word for word as on two real GPUs.

cuda_2_13.json holds expressions and what they gave in the CUDA build of torch 2.13.0, on stand-in libraries and no GPU: the
value, or the exception, in order, because some depend on those before. Addresses are blotted out. What a rehearsal
answers otherwise is not among them: the properties of another GPU, handles, and what is refused (impersonate/refusals.py).
"""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import pytest
import torch
import torch.cuda.tunable  # loaded late; one expression asks it

from wherry.rehearse import rehearse
from wherry.rehearse.wording import torch_release

ANSWERS: list[tuple[str, str]] = [
    (question, answer)
    for question, answer in json.loads((Path(__file__).parent / "cuda_2_13.json").read_text(encoding="utf-8"))
]


def blotted(text: str) -> str:
    text = re.sub(r"0x[0-9a-f]+", "0xN", text.replace("\n", "|"))
    return re.sub(r"'/[^' ]*/torch/", "'.../torch/", text).strip()


def answer(question: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return blotted(str(eval(question)))
    except Exception as err:
        text = str(err).replace("\n", " | ")
        return blotted(f"{type(err).__name__} {text}"[:300]).removesuffix(" |")


@pytest.mark.skipif(torch_release() != (2, 13), reason="the answers are those of torch 2.13")
def test_answers_are_those_of_the_real_build() -> None:
    torch.get_device_module("cpu")

    with rehearse("cuda", count=2):
        ours = [(question, answer(question)) for question, _ in ANSWERS]

    assert [pair for pair, real in zip(ours, ANSWERS, strict=True) if pair != real] == []
    assert len(ANSWERS) == 149


def test_a_wrong_answer_would_be_noticed() -> None:
    with rehearse("cuda", count=2):
        assert answer("torch.cuda.get_device_properties(7)") == "AssertionError Invalid device id"
        assert answer("torch.cuda.device_count()") == "2"
