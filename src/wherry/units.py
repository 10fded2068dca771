"""Bytes, durations and rates, to text and back.

One rule for sizes: MiB is 2**20 and is always written MiB; MB is 10**6 and wherry never writes it. On the way in both
are understood and mean what the standard says (IEC 80000-13), so "8GB" is 8 * 10**9. A bare letter ("8G") means the
binary unit, as in torch's own allocator settings, `free -h` and Slurm.
"""

from __future__ import annotations

import re

from wherry.errors import BadSize

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40

_UNITS = {
    "": 1, "b": 1,
    "k": KIB, "kib": KIB, "kb": 10**3,
    "m": MIB, "mib": MIB, "mb": 10**6,
    "g": GIB, "gib": GIB, "gb": 10**9,
    "t": TIB, "tib": TIB, "tb": 10**12,
}  # fmt: skip
_SIZE = re.compile(r"([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([a-z]*)", re.IGNORECASE | re.ASCII)
_MOST = 2**63 - 1  # what torch counts bytes in


def parse_bytes(size: str | int) -> int:
    """Read a number of bytes.

    Args:
        size: A number of bytes, or a text such as "6GiB", "1.5 GiB", "512m", "8GB", "4096".

    Returns:
        The number of bytes, at least 1.

    Raises:
        BadSize: the text names no positive number of bytes; the message says what is wrong with it.

    >>> parse_bytes("6GiB"), parse_bytes("8GB"), parse_bytes("1.5k")
    (6442450944, 8000000000, 1536)
    """
    if isinstance(size, bool):
        raise BadSize(size, "it is a truth value")
    if isinstance(size, int):
        nbytes = size
    else:
        text = size.strip()
        if not text:
            raise BadSize(size, "it is empty")
        match = _SIZE.fullmatch(text)
        if match is None:
            starts = re.match(r"[+-]?\.?\d", text, re.ASCII)
            raise BadSize(size, "it is not understood" if starts else "it does not start with a number")
        number, unit = match.groups()
        if unit.lower() not in _UNITS:
            raise BadSize(size, f'"{unit}" is no unit of bytes')
        exact = float(number.replace("_", "")) * _UNITS[unit.lower()]
        nbytes = round(exact) if exact <= _MOST else _MOST + 1
    if nbytes > _MOST:
        raise BadSize(size, "it is more than any device has")
    if nbytes < 1:
        raise BadSize(size, "it is less than one byte")
    return nbytes


def format_bytes(nbytes: int) -> str:
    """Write a number of bytes, in the largest unit that leaves at least 1.

    >>> [format_bytes(n) for n in (0, 1023, 1536, 8 * GIB, 25_250_627_584)]
    ['0 B', '1023 B', '1.5 KiB', '8 GiB', '23.5 GiB']
    """
    if abs(nbytes) < KIB:
        return f"{nbytes} B"
    value = float(nbytes)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= KIB
        # 1023.95 would be printed as "1024.0 KiB".
        if abs(value) < 1023.95 or unit == "TiB":
            break
    return f"{value:.1f}".removesuffix(".0") + f" {unit}"


def format_duration(seconds: float) -> str:
    """Write a duration, in the unit a reader would choose.

    >>> [format_duration(s) for s in (0, 8.2e-06, 0.0123, 3.25, 125)]
    ['0 s', '8.2 us', '12.3 ms', '3.25 s', '2 min 5 s']
    """
    if seconds == 0:
        return "0 s"
    # The limits are where three digits would round up to the next unit.
    if seconds < 0.9995e-3:
        return f"{seconds * 1e6:.3g} us"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def format_rate(nbytes: int, seconds: float) -> str:
    """Write how many bytes went by in a second.

    >>> format_rate(3 * GIB, 2.0)
    '1.5 GiB/s'
    """
    if seconds <= 0:
        return "-"
    return f"{format_bytes(round(nbytes / seconds))}/s"
