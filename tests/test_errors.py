"""The exception tree: what a message shows, and what can be caught as what."""

from __future__ import annotations

import pytest

from evenhand import errors
from evenhand.errors import EvenhandError, FormatError


@pytest.mark.parametrize("name", [name for name in errors.__all__ if name[0].isupper()])
def test_every_error_is_a_value_error_of_ours(name):
    kind = getattr(errors, name)
    assert issubclass(kind, EvenhandError)
    assert issubclass(kind, ValueError)
    assert kind.__doc__
    assert f"`{name}`" in (errors.__doc__ or "")


def test_the_hint_follows_the_message():
    error = EvenhandError("it is wrong", hint="do it right")
    assert str(error) == "it is wrong\nhint: do it right"
    assert error.message == "it is wrong"
    assert error.hint == "do it right"
    assert str(EvenhandError("it is wrong")) == "it is wrong"


def test_faults_of_one_kind_are_one_error():
    assert str(FormatError.collect(["a:1: x"])) == "a:1: x"
    three = FormatError.collect(["a:1: x", "a:2: x", "a:3: x"], hint="mend them")
    assert str(three) == "a:1: x\na:2: x\na:3: x\nhint: mend them"
    many = FormatError.collect([f"a:{i}: x" for i in range(1, 6)])
    assert many.message == "a:1: x\na:2: x\na:3: x\n... 5 in all"
    some = FormatError.collect(["a:1: x", "a:2: x"], total=12_345)
    assert some.message == "a:1: x\na:2: x\n... 12,345 in all"
    assert isinstance(some, FormatError)
