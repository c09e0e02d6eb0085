"""float64 for the duration of a call, and no global flag touched."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenhand.errors import PrecisionError
from evenhand.estimands.goals import rank
from evenhand.estimands.pools import pool
from evenhand.estimands.targets import target
from evenhand.float64 import in_float64, require_float64
from evenhand.formats.runs import read_runs


@in_float64
def third(x: np.ndarray) -> np.ndarray:
    """A third of each."""
    return np.asarray(jnp.asarray(x) / 3)


def test_a_call_is_in_float64_and_the_setting_ends_with_it():
    before = jax.config.jax_enable_x64
    result = third(np.array([1.0]))
    assert isinstance(result, np.ndarray)
    assert result.dtype == np.float64
    assert result[0] == 1 / 3
    assert jax.config.jax_enable_x64 == before
    assert third.__name__ == "third"
    assert third.__doc__ == "A third of each."


@pytest.mark.parametrize("outside", [False, True])
def test_whatever_the_caller_has_set(outside):
    with jax.enable_x64(outside):
        assert third(np.array([1.0])).dtype == np.float64
        assert jnp.ones(1).dtype == (jnp.float64 if outside else jnp.float32)


def test_the_setting_ends_with_an_error_too():
    before = jax.config.jax_enable_x64

    @in_float64
    def fails() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert jax.config.jax_enable_x64 == before


def test_what_users_hold_is_numpy_in_float64():
    runs = read_runs({"x": {"q": {"a": 2.0, "b": 1.0}}, "y": {"q": {"b": 1.0}}})
    goal = rank(target(pool(runs), "DCG@2"))
    for array in (goal.matrix, goal.norms(), goal.at(np.array([0])), goal.target.weight):
        assert isinstance(array, np.ndarray)
        assert array.dtype == np.float64


def test_require_float64():
    with jax.enable_x64(True):
        array = require_float64(np.array([0.1]), "the proposal")
        assert array.dtype == jnp.float64
        assert float(array[0]) == 0.1
        with pytest.raises(PrecisionError, match="the proposal must be float64, got int64"):
            require_float64(np.array([1]), "the proposal")
    with (
        jax.enable_x64(False),
        pytest.raises(PrecisionError, match="the proposal must be float64, got float32") as caught,
    ):
        require_float64(np.array([0.1]), "the proposal")
    assert caught.value.hint.startswith("jax.config.update('jax_enable_x64', True)")
    assert "lose all mass" in caught.value.message
