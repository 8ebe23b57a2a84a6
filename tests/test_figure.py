"""How numbers are written in evidence."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.core.figure import figure


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.03333333, "0.03333"),
        (-9.4, "-9.4"),
        (999.94, "999.9"),
        (999.96, "1,000"),
        (1234.56, "1,235"),
        (158_312.0, "158,300"),
        (-24_321_234.0, "-24,320,000"),
        (999_960_000.0, "1G"),
        (2.164e12, "2.164T"),
        (5e-7, "5e-07"),
        (1e30, "1e+30"),
        (math.inf, "inf"),
        (math.nan, "nan"),
    ],
)
def test_as_an_engineer_writes_it(value, text):
    assert figure(value) == text


def test_with_fewer_digits_a_number_is_shorter():
    assert [figure(158_312.0, 3), figure(0.123456, 3), figure(2.164e12, 2)] == ["158,000", "0.123", "2.2T"]


@given(st.floats(-1e17, 1e17), st.integers(3, 6))
def test_what_is_written_is_the_number_to_so_many_digits(value, digits):
    text = figure(value, digits).replace(",", "")
    factor = {"G": 1e9, "T": 1e12, "P": 1e15}.get(text[-1], 1.0)
    assert float(text.rstrip("GTP")) * factor == pytest.approx(
        value, rel=0.5 * 10.0 ** (1 - digits) * 1.01, abs=0
    )
