"""What do entering and leaving a rehearsal cost, and importing wherry?

    python benchmarks/enter_exit.py --check

Each sample is a process of its own, because most of the price is paid once: modules are imported and plans are made.
The peers are importing torch, which a rehearsal needs anyway, and entering torch's own FakeTensorMode. The last rows ask
whether anything is left behind: `a + b` before a process first rehearses, and after it left.

Promised: `import wherry` takes at most a tenth of `import torch`; an operator after a rehearsal at most 1.1 of before.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping

from measure.rounds import Rounds, Target, parser, report

# Each prints a list of the seconds of its rows.
PROGRAMS: Mapping[tuple[str, ...], str] = {
    ("import torch",): """
        start = now()
        import torch
        print([now() - start])
    """,
    ("import wherry",): """
        start = now()
        import wherry
        print([now() - start])
    """,
    ("first FakeTensorMode", "later FakeTensorMode"): """
        import torch

        def enter():
            from torch._subclasses.fake_tensor import FakeTensorMode
            start = now()
            with FakeTensorMode():
                pass
            return now() - start

        start = now()
        enter()
        first = now() - start
        print([first, min(enter() for _ in range(5))])
    """,
    ("first rehearsal", "later rehearsal", "a + b before a rehearsal", "a + b after a rehearsal"): """
        import timeit
        import torch
        torch.set_num_threads(1)
        timer = timeit.Timer("a + b", globals={"a": torch.ones(4), "b": torch.ones(4)})
        timer.timeit(20_000)
        before = min(timer.repeat(5, 20_000)) / 20_000

        def enter():
            import wherry
            start = now()
            with wherry.rehearse("cuda"):
                torch.ones(4, device="cuda")
            return now() - start

        start = now()
        enter()
        first = now() - start
        later = min(enter() for _ in range(5))
        after = min(timer.repeat(5, 20_000)) / 20_000
        print([first, later, before, after])
    """,
}


def run(program: str) -> list[float]:
    lines = [line.removeprefix(8 * " ") for line in program.splitlines()]
    text = "\n".join(["from time import perf_counter as now", *lines])
    done = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main() -> None:
    args = parser(__doc__.splitlines()[0], rounds=7).parse_args()

    samples: dict[str, list[float]] = {name: [] for names in PROGRAMS for name in names}
    for number in range(-1, args.rounds):  # the round before the first fills the disk's cache
        for names, program in PROGRAMS.items():
            for name, seconds in zip(names, run(program), strict=True):
                if number >= 0:
                    samples[name].append(seconds)
    rounds = Rounds({name: tuple(values) for name, values in samples.items()})

    rows = [
        {
            "what": name,
            "ms": rounds.seconds(name) * 1e3,
            "x import torch": None if name.startswith("a + b") else rounds.ratio(name, "import torch"),
        }
        for name in samples
    ]
    imported = rounds.ratio("import wherry", "import torch").median
    left = rounds.ratio("a + b after a rehearsal", "a + b before a rehearsal").median
    targets = [
        Target("import wherry, in import torch's", imported, 0.1),
        Target("a + b after a rehearsal, in that of before", left, 1.1),
    ]
    report(__doc__.splitlines()[0], "a process per sample; a, b: 4 float32", rows, targets, args)


if __name__ == "__main__":
    main()
