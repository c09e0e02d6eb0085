"""float64 where it counts, without asking the user.

A cumulative sum over 10^7 pairs in float32 gives half of them no mass at all. So the functions that
users call with tables run in float64 for their own duration and hand back NumPy arrays
(`in_float64`); the functions on arrays, which a caller may use inside his own ``jit``, follow his
setting and refuse float32 where it would silently lose mass (`require_float64`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from evenhand.errors import PrecisionError

# JAX takes half a second to import, which a command that computes nothing need not wait for: this
# module and `estimands` import it where it is used.
if TYPE_CHECKING:
    import jax

__all__ = ["in_float64", "require_float64"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def in_float64(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Run `function` in float64, whatever JAX is set to.

    The setting ends with the call, so what `function` returns must be NumPy: a JAX array in float64
    that left would turn float32 at its next operation.
    """

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        import jax

        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return call


def require_float64(array: jax.typing.ArrayLike, what: str) -> jax.Array:
    """Give `array` back if it is float64.

    Raises
    ------
    PrecisionError
        If it is not, or JAX would make it float32.
    """
    import jax.numpy as jnp

    array = jnp.asarray(array)
    if array.dtype != jnp.float64:
        raise PrecisionError(
            f"{what} must be float64, got {array.dtype}: "
            "in single precision small proposals lose all mass",
            hint="jax.config.update('jax_enable_x64', True), before the first array is made",
        )
    return array
