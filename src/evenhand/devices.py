"""Several devices at once: they share heavy work, and answers do not depend on their number.

Three kinds of work are heavy, and each is many alike:

- passes over cells, by blocks (`evenhand.estimands.blocks`): norms of designs, the climb to a
  minimax design, the sums over the pool that intervals ask for. Each device has some of the blocks;
- replicated studies (`evenhand.simulation`): each device has some of the keys;
- what follows, over vectors of a number a cell: proposals, water-filling, the cumulated line that
  draws are made from. That stays on one device, since the last digits of a cumulated sum depend on
  where it is cut.

Blocks and studies are computed as they are on one device, on whichever device, and results are
gathered before it is added up. So q and the draws are the same bits on one device and on eight;
estimates agree to rounding.

Accelerators are used all by themselves if there is more than one. ``with spread(devices):`` says
otherwise: some of them, one alone, or the processors' cores, which JAX takes for devices if asked
before it starts (``XLA_FLAGS=--xla_force_host_platform_device_count=8``). With one device nothing
here costs time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from evenhand.errors import EvenhandError

__all__ = ["AXIS", "adds_in_order", "by_share", "mesh", "place", "spread"]

#: Name of the axis that is cut.
AXIS = "share"

_chosen: ContextVar[tuple[Any, ...] | None] = ContextVar("devices", default=None)


@contextmanager
def spread(devices: Sequence[Any] | int) -> Iterator[None]:
    """Use these devices, or the first so many of JAX's, for the duration of a ``with`` block.

    Parameters
    ----------
    devices
        JAX's, of one kind; 1 for no cutting at all.

    Raises
    ------
    EvenhandError
        If there are not as many.

    Examples
    --------
    >>> with spread(1):
    ...     print(mesh())
    None
    """
    if isinstance(devices, int):
        there = jax.local_devices()
        if not 1 <= devices <= len(there):
            raise EvenhandError(
                f"asked for {devices} devices, JAX has {len(there)} ({there[0].platform})",
                hint="XLA_FLAGS=--xla_force_host_platform_device_count=8 makes 8 of the processors",
            )
        devices = there[:devices]
    if not devices:
        raise EvenhandError("there is no device to spread the work over")
    token = _chosen.set(tuple(devices))
    try:
        yield
    finally:
        _chosen.reset(token)


def mesh() -> Mesh | None:
    """The devices in use, in a row; None where there is but one."""
    devices = _chosen.get()
    if devices is None:
        there = jax.local_devices()
        devices = tuple(there) if there[0].platform != "cpu" else ()
    return Mesh(np.array(devices), (AXIS,)) if len(devices) > 1 else None


def adds_in_order() -> bool:
    """Whether sums by scattered places are added in one order, so that they come out the same.

    Processors add one number after the other, and fast; accelerators add as they come.
    """
    devices = _chosen.get() or jax.local_devices()
    return devices[0].platform == "cpu"


def place(over: Mesh | None, array: Any) -> jax.Array:
    """An array on the devices, cut along its first axis, whose length they must divide."""
    if over is None:
        return jax.device_put(array)
    return jax.device_put(array, NamedSharding(over, P(AXIS)))


def by_share(over: Mesh | None, function: Callable[..., Any], cut: int) -> Callable[..., Any]:
    """`function`, each device computing its share of the rows.

    Parameters
    ----------
    over
        The devices, or None for `function` itself.
    function
        Of arrays; what it gives has rows as its first `cut` arguments have, each made from one row
        alone.
    cut
        How many of the arguments are cut along their first axis; each device has all of the others.

    Returns
    -------
    Callable
        Gives the rows of all devices, gathered; works under ``jit``, ``vmap`` and ``grad``.
    """
    if over is None:
        return function

    def shared(*arguments: Any) -> Any:
        specs = tuple(P(AXIS) if i < cut else P() for i in range(len(arguments)))
        rows = jax.shard_map(
            function, mesh=over, in_specs=specs, out_specs=P(AXIS), check_vma=False
        )(*arguments)
        # What is added up next is added up in one order, however many devices there are.
        return jax.lax.with_sharding_constraint(rows, NamedSharding(over, P()))

    return shared
