from __future__ import annotations

import numpy as np

from onnxq.times.fit import Fit, error_of, least_positive


def test_coefficients_of_an_exact_law_are_found() -> None:
    x = np.array([[1.0, a, b] for a in (1, 10, 100) for b in (3, 50, 700)])
    wanted = np.array([5.0, 0.25, 2.0])
    # three columns are solved in float64: a few ulps
    np.testing.assert_allclose(least_positive(x, x @ wanted), wanted, rtol=1e-9)


def test_no_coefficient_is_negative() -> None:
    x = np.array([[1.0, 1], [1, 2], [1, 4]])
    found = least_positive(x, np.array([4.0, 3, 1]))  # falls with the size
    assert found.min() >= 0


def test_a_measured_point_is_nearly_what_was_measured() -> None:
    sizes = [(8,), (64,), (512,), (4096,)]
    ns = [100.0, 150, 2000, 9000]  # no straight line
    fit = Fit.of(sizes, ns)
    for size, wanted in zip(sizes, ns, strict=True):
        # its weight is 1 / NEAR = 20; the other three are 3 and more doublings away: 0.3 together
        assert abs(np.log(fit.ns(size) / wanted)) < 0.05


def test_the_error_of_a_law_that_holds_is_none() -> None:
    sizes = [(n,) for n in (10, 100, 1000, 10000)]
    assert error_of(sizes, [50 + 2 * n for (n,) in sizes]) < 1e-6
    assert error_of(sizes, [80, 200, 3000, 15000]) > 0.05
    assert error_of(sizes[:1], [80]) == 1  # nobody knows


def test_the_error_of_many_rows_needs_no_other_bases() -> None:
    sizes = [(n,) for n in range(10, 400, 10)]
    ns = [50 + 2 * n + 10 * (n % 3) for (n,) in sizes]
    assert error_of(sizes, ns) == Fit.of(sizes, ns).error > 0


def test_one_row_is_a_table() -> None:
    assert Fit.of([(100,)], [70.0]).ns((100,)) > 0
