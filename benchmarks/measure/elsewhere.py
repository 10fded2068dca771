"""A peer that changes torch for good, measured in a process of its own and still in turn with the others.

FakeGPU (CUDA only, CPU underneath) is one: after `fakegpu.init` no tensor of that process is an ordinary one again. So the
benchmark starts itself a second time with `--elsewhere`; that process waits for the name of a sample on its standard input
and answers with the seconds. Only where `fakegpu` is installed; it is no dependency of anything here.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping

from measure.peers import Peer

FAKEGPU = Peer("FakeGPU, its own process", contextlib.nullcontext, device="cuda")


def is_installed() -> bool:
    return importlib.util.find_spec("fakegpu") is not None


def serve(samples: Mapping[str, Callable[[], float]]) -> None:
    """In the second process: take a sample for each line of the standard input, until it ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the peer prints is no answer
    import fakegpu

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fakegpu.init(runtime="fakecuda", profile="a100", device_count=1)
    for line in sys.stdin:
        answers.write(f"{samples[line.rstrip()]()}\n")
        answers.flush()


@contextlib.contextmanager
def asked(script: str) -> Iterator[Callable[[str], Callable[[], float]]]:
    """In the first process: gives a function from the name of a sample to a way of taking it."""
    command = [sys.executable, script, "--elsewhere"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, encoding="utf-8", **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        ask, answers, errors = process.stdin, process.stdout, process.stderr

        def sampler(name: str) -> Callable[[], float]:
            def sample() -> float:
                ask.write(f"{name}\n")
                ask.flush()
                answer = answers.readline()
                if not answer:
                    raise SystemExit(f"{FAKEGPU.name}: {errors.read()}")
                return float(answer)

            return sample

        yield sampler
        ask.close()  # ends its loop
        process.terminate()  # what it would print on its way out, nobody reads
