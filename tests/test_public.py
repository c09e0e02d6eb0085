"""What is public: every name resolves, every command is in the README."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest

import evenhand
from evenhand.cli import main

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")


def test_every_public_name_resolves_and_is_the_rooms_own():
    for name, (room, original) in evenhand._HOME.items():
        module = importlib.import_module(f"evenhand.{room}")
        assert getattr(evenhand, name) is getattr(module, original)
        assert original in module.__all__
    assert sorted(evenhand.__all__) == evenhand.__all__
    assert set(evenhand.__all__) <= set(dir(evenhand))


def test_type_checkers_see_the_same_names():
    source = Path(evenhand.__file__).read_text(encoding="utf-8")
    declared = {
        line.split(" as ")[1].split()[0]
        for line in source.splitlines()
        if line.startswith("    from evenhand.")
    }
    assert declared == set(evenhand.__all__)


def test_no_room_is_named_like_a_public_name():
    # Importing a room sets an attribute of its name on the package and would hide the function.
    rooms = {module.name for module in pkgutil.iter_modules(evenhand.__path__)}
    assert not rooms & set(evenhand.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = evenhand.no_such_name


def test_every_room_says_what_is_public():
    for module in pkgutil.walk_packages(evenhand.__path__, "evenhand."):
        room = importlib.import_module(module.name)
        assert room.__doc__, module.name
        missing = [name for name in room.__all__ if not hasattr(room, name)]
        assert not missing, (module.name, missing)


def test_every_command_is_in_the_readme_and_has_help():
    for name, command in main.commands.items():
        assert f"evenhand {name}" in README, name
        assert command.help, name
