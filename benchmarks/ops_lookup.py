"""How long does it take to look operators up?

    python benchmarks/ops_lookup.py --check

Each sample is a process of its own, since the file that torch ships is read once: the first look-up reads it, the next ones
are of operators that were not asked about before. Beside them what else is to be had: `torchgen.gen.parse_native_yaml`, which
PyTorch itself generates code with, on the same file, and asking the dispatcher of the installed torch, which knows the
kernels of the backends that it was built for.

Promised: the first look-up takes less than 300 ms, every other less than 5 ms, the whole catalog of a backend included in
neither.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping

from measure.rounds import Rounds, Target, parser, report

# Each prints a list of the seconds of its rows.
PROGRAMS: Mapping[tuple[str, ...], str] = {
    ("first look-up", "another look-up", "the slowest of 200", "a whole backend"): """
        start = now()
        from wherry import backends
        from wherry.ops import catalog, coverage
        mps = backends.find("mps")
        assert catalog.support("take", mps).standing is catalog.Standing.MISSING
        first = now() - start

        names = list(coverage.operators())
        each = []
        for name in names[:: len(names) // 200]:
            start = now()
            coverage.entry(name, mps)
            each.append(now() - start)

        start = now()
        catalog.summary(backends.find("xpu"))
        print([first, sorted(each)[len(each) // 2], max(each), now() - start])
    """,
    ("torchgen reads the file",): """
        from pathlib import Path
        import torchgen
        from torchgen.gen import parse_native_yaml
        folder = Path(torchgen.__file__).parent / "packaged/ATen/native"
        start = now()
        parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml"))
        print([now() - start])
    """,
    ("dispatcher, one operator",): """
        import torch
        start = now()
        torch._C._dispatch_has_kernel_for_dispatch_key("aten::take", "CPU")
        print([now() - start])
    """,
}
PROMISED_FIRST, PROMISED_NEXT = 300.0, 5.0  # milliseconds


def run(program: str) -> list[float]:
    lines = [line.removeprefix(8 * " ") for line in program.splitlines()]
    text = "\n".join(["from time import process_time as now", *lines])
    done = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main() -> None:
    args = parser(__doc__.splitlines()[0], rounds=7).parse_args()

    samples: dict[str, list[float]] = {name: [] for names in PROGRAMS for name in names}
    for number in range(args.rounds):
        turns = list(PROGRAMS.items())
        for names, program in turns if number % 2 == 0 else reversed(turns):
            for name, seconds in zip(names, run(program), strict=True):
                samples[name].append(seconds)
    rounds = Rounds({name: tuple(values) for name, values in samples.items()})

    rows = [
        {"what": name, "ms": rounds.seconds(name) * 1e3, "x torchgen": rounds.ratio(name, "torchgen reads the file")}
        for name in samples
    ]
    targets = [
        Target("first look-up, in ms", rounds.seconds("first look-up").median * 1e3, PROMISED_FIRST),
        Target("slowest other look-up, in ms", rounds.seconds("the slowest of 200").median * 1e3, PROMISED_NEXT),
    ]
    report(__doc__.splitlines()[0], "a process per sample; CPU time", rows, targets, args)


if __name__ == "__main__":
    main()
