"""Sizes, durations and rates as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherry.errors import BadSize
from wherry.units import GIB, format_bytes, format_duration, format_rate, parse_bytes


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("6GiB", 6 * 2**30),
        ("6 GiB", 6 * 2**30),
        ("6gib", 6 * 2**30),
        ("6G", 6 * 2**30),
        ("8GB", 8 * 10**9),
        ("512MiB", 512 * 2**20),
        ("512m", 512 * 2**20),
        ("1.5KiB", 1536),
        (".5k", 512),
        ("4096", 4096),
        ("4096B", 4096),
        ("1_000_000", 1_000_000),
        ("1e9", 10**9),
        ("2TiB", 2**41),
        (" 1 B ", 1),
        (4096, 4096),
    ],
)
def test_size_is_read(text: str | int, nbytes: int) -> None:
    assert parse_bytes(text) == nbytes


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("lots", "it does not start with a number"),
        ("", "it is empty"),
        ("  ", "it is empty"),
        ("0", "it is less than one byte"),
        ("0GiB", "it is less than one byte"),
        ("-1GiB", "it is less than one byte"),
        ("6XB", '"XB" is no unit of bytes'),
        ("6 giga bytes", "it is not understood"),
        ("6GiB!", "it is not understood"),
        ("1.2.3G", "it is not understood"),
        ("٣GiB", "it does not start with a number"),
        ("1e999", "it is more than any device has"),
        (0, "it is less than one byte"),
        (True, "it is a truth value"),
    ],
)
def test_what_is_no_size_is_refused_with_the_reason(text: str | int, why: str) -> None:
    with pytest.raises(BadSize) as caught:
        parse_bytes(text)

    assert caught.value.given == text
    assert caught.value.why == why


@given(st.integers(min_value=1, max_value=2**50))
def test_what_is_written_is_read_back_to_its_precision(nbytes: int) -> None:
    back = parse_bytes(format_bytes(nbytes))

    # One decimal of a number of at least 1: half of a tenth of the unit.
    assert abs(back - nbytes) <= 0.05 * nbytes


@given(st.integers(min_value=0, max_value=2**60))
def test_written_sizes_use_binary_units_and_stay_short(nbytes: int) -> None:
    number, unit = format_bytes(nbytes).split(" ")

    assert unit in {"B", "KiB", "MiB", "GiB", "TiB"}
    assert unit == "TiB" or float(number) < 1024


@given(st.text(max_size=12))
def test_no_text_makes_reading_a_size_fail_otherwise(text: str) -> None:
    try:
        nbytes = parse_bytes(text)
    except BadSize:
        return
    assert nbytes >= 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (8.2e-06, "8.2 us"),
        (0.0123, "12.3 ms"),
        (0.9996, "1 s"),
        (59.96, "1 min 0 s"),
        (3600, "1 h 0 min"),
        (7325, "2 h 2 min"),
    ],
)
def test_duration_is_written_in_the_unit_of_its_size(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_rate_of_nothing_in_no_time_is_a_dash() -> None:
    assert format_rate(0, 0.0) == "-"
    assert format_rate(3 * GIB, 2.0) == "1.5 GiB/s"
