"""`wherry ops`: the table people read, the JSON programs read, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from wherry.ops import catalog

only_2_13 = pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the operators that 2.13 lacks")
GPT = Path(__file__).parents[2] / "examples" / "char_gpt.py"


def test_without_a_name_it_counts(folder):
    done = folder.wherry("ops")

    assert done.status == 0
    assert f"{len(catalog.overloads()):,} overloads of PyTorch's own operators" in done.stdout
    rows = {line.split("  ")[0].strip(): line.split() for line in done.stdout.splitlines()}
    assert rows["kernel"][1] == f"{catalog.summary(_backend('cuda'))[catalog.Standing.KERNEL]:,}"
    assert {"kernel", "composite", "falls back", "missing", "foreign"} <= rows.keys()


def test_counts_as_json(folder):
    done = folder.wherry("ops", "--on", "mps", "--json")

    found = json.loads(done.stdout)
    assert found["torch"] == torch.__version__
    assert list(found["backends"]) == ["mps"]
    assert sum(found["backends"]["mps"].values()) == found["overloads"]


@only_2_13
def test_operators_by_name(folder):
    done = folder.wherry("ops", "linalg.svd", "F.ctc_loss", "take", "conv2d", "--on", "mps")

    assert done.status == 1  # something raises
    assert done.stdout.splitlines()[:5] == [
        "operator     mps       ",
        "linalg_svd   falls back",
        "ctc_loss     missing   ",
        "take         missing   ",
        "conv2d       composite ",
    ]
    assert "mps  calls aten::_ctc_loss: missing" in done.stdout
    assert "x.flatten()[index]" in done.stdout


def test_operator_that_every_backend_has_is_status_0(folder):
    done = folder.wherry("ops", "add")

    assert done.status == 0
    assert done.stdout.splitlines()[0].split() == ["operator", "cuda", "rocm", "mps", "xpu"]
    assert done.stdout.splitlines()[1].split() == ["add", "kernel", "kernel", "kernel", "kernel"]


@only_2_13
def test_operators_as_json(folder):
    done = folder.wherry("ops", "put", "--on", "mps,cuda", "--json")

    mps, cuda = json.loads(done.stdout)
    assert (mps["operator"], mps["backend"], mps["standing"]) == ("aten::put", "mps", "missing")
    assert mps["overloads"][0]["named"] == "aten::put_"
    assert (cuda["backend"], cuda["standing"], cuda["instead"]) == ("cuda", "composite", [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tkae"], 'wherry: no operator is called "tkae". Did you mean take?'),
        (["zz*"], 'wherry: no operator matches "zz*".'),
        (["take", "--on", "mpx"], 'wherry: "mpx" is no device wherry knows. Did you mean "mps"?'),
        (["--jsn"], "wherry: there is no option --jsn."),
        (["--used-by", "nowhere.py"], "wherry: "),
    ],
)
def test_misuse_is_one_sentence(folder, words, said):
    done = folder.wherry("ops", *words)

    assert done.status == 2
    assert done.stderr.startswith(said)
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


LACKING = """
    import sys, torch
    print("the program's own words")
    for _ in range(3):
        x = torch.linspace(0, 1, int(sys.argv[1]))
        y = x.take(torch.tensor([0, 1]))
    torch.linalg.svd(torch.eye(2))
"""


@only_2_13
@pytest.mark.slow
def test_what_a_program_uses(folder, script):
    script(LACKING)

    done = folder.wherry("ops", "--used-by", "program.py", "5", "--on", "mps,cuda")

    assert done.status == 1
    assert "own words" not in done.stdout
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert lines[0].startswith("program.py used ")
    assert "mps  1 missing, 1 through the CPU" in lines
    assert "  aten::take  missing  3 times" in lines
    assert "    program.py:6  y = x.take(torch.tensor([0, 1]))" in lines
    assert "    write        x.flatten()[torch.tensor([0, 1])]" in lines
    assert "  aten::linalg_svd  falls back  once" in lines
    assert "  With PYTORCH_ENABLE_MPS_FALLBACK=1 they go through the CPU: 188 B across." in lines
    assert "cuda  has all of them" in lines


@only_2_13
@pytest.mark.slow
def test_what_a_program_uses_as_json(folder, script):
    script(LACKING)

    done = folder.wherry("ops", "--used-by", "program.py", "5", "--json", "--on", "mps")

    found = json.loads(done.stdout)
    (mps,) = found["coverage"]
    assert found["program"] == ["program.py", "5"]
    assert found["run"]["status"] == 0
    assert [(lack["operator"], lack["count"]) for lack in mps["lacks"]] == [("aten::take", 3), ("aten::linalg_svd", 1)]
    assert mps["lacks"][0]["uses"][0]["line"] == 6


@only_2_13
@pytest.mark.slow
def test_program_that_fails_is_told_with_what_it_used_until_then(folder, script):
    script("""
        import torch
        torch.ones(2).take(torch.tensor([0]))
        raise ValueError("no more")
    """)

    done = folder.wherry("ops", "--used-by", "program.py", "--on", "mps")

    assert done.status == 1
    assert "program.py failed on the CPU at program.py:4: ValueError: no more. What it used until then:" in done.stdout
    assert "aten::take  missing  once" in done.stdout


@pytest.mark.slow
def test_options_that_are_not_ours_are_the_programs(folder, script):
    script("""
        import argparse, torch
        parser = argparse.ArgumentParser()
        parser.add_argument("--size", type=int)
        torch.ones(parser.parse_args().size)
    """)

    done = folder.wherry("ops", "--used-by", "program.py", "--size", "3", "--on", "mps")

    assert (done.status, done.stderr) == (0, "")
    assert "mps  has all of them" in done.stdout


@pytest.mark.slow
def test_worker_processes_are_seen(folder, script):
    script("""
        import torch
        from torch.utils.data import DataLoader

        class Rows(torch.utils.data.Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, i):
                return torch.arange(4.0).take(torch.tensor([i]))

        if __name__ == "__main__":
            for batch in DataLoader(Rows(), num_workers=1):
                batch + 1
    """)

    done = folder.wherry("ops", "--used-by", "program.py", "--json")

    mps = next(each for each in json.loads(done.stdout)["coverage"] if each["backend"] == "mps")
    assert [(lack["operator"], lack["count"]) for lack in mps["lacks"]] == [("aten::take", 4)]


@pytest.mark.slow
def test_gpt_of_the_examples_answers_in_one_screen(folder):
    done = folder.wherry("ops", "--used-by", str(GPT), "--steps", "2", "--on", "mps")

    assert done.status == 0, done.stderr
    assert "mps  has all of them" in done.stdout
    assert len(done.stdout.splitlines()) < 24


def _backend(name):
    from wherry import backends

    return backends.find(name)
