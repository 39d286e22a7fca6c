"""Second moments of a product's inputs."""

from __future__ import annotations

import numpy as np

from tests.blocks.block_models import moments_of

ROWS = np.random.default_rng(0).standard_normal((12, 5)).astype(np.float32)


def test_power_is_the_mean_square_of_each_input() -> None:
    np.testing.assert_allclose(moments_of(ROWS).power, np.square(ROWS).mean(0), rtol=1e-5)
