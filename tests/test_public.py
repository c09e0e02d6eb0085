"""What is public: every name resolves, every command is in the README or a guide."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import evenhand
from evenhand.cli import main

SOURCE = Path(evenhand.__file__).parent
PAGES = {
    path.name: path.read_text(encoding="utf-8")
    for path in [Path(__file__).resolve().parents[1] / "README.md", *SOURCE.glob("guides/*.md")]
}
STUBS = sorted(SOURCE.rglob("__init__.pyi"))


@pytest.mark.parametrize("stub", STUBS, ids=lambda path: path.parent.name)
def test_every_name_of_a_package_is_public_where_it_is_defined(stub):
    name = ".".join(stub.parent.relative_to(SOURCE.parent).parts)
    package = importlib.import_module(name)
    listed = re.findall(r"from \.(\S+) import (\S+) as (\S+)", stub.read_text(encoding="utf-8"))
    assert len(listed) == len(stub.read_text(encoding="utf-8").splitlines())
    for module, original, public in listed:
        home = importlib.import_module(f"{name}.{module}")
        assert original == public
        assert getattr(package, public) is getattr(home, original)
        assert original in home.__all__
    names = sorted(public for _, _, public in listed)
    assert sorted(package.__all__) == names
    assert set(names) <= set(dir(package))
    # Importing a module sets an attribute of its name on its package and would hide the function.
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    assert not modules & set(names)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = evenhand.no_such_name


def test_every_module_lists_what_is_public():
    for module in pkgutil.walk_packages(evenhand.__path__, "evenhand."):
        found = importlib.import_module(module.name)
        assert found.__doc__, module.name
        missing = [name for name in found.__all__ if not hasattr(found, name)]
        assert not missing, (module.name, missing)


def test_every_command_is_in_the_readme_or_a_guide_and_has_help():
    text = "".join(PAGES.values())
    for name, command in main.commands.items():
        assert f"evenhand {name}" in text, name
        assert command.help, name


def there(name: str) -> bool:
    """Whether a dotted name is a module, or what one holds."""
    found, *rest = name.split(".")
    value = importlib.import_module(found)
    for part in rest:
        found = f"{found}.{part}"
        if not hasattr(value, part):
            try:
                importlib.import_module(found)
            except ModuleNotFoundError:
                return False
        value = getattr(value, part)
    return True


def test_every_dotted_name_in_the_texts_is_there():
    """Docstrings, hints, README, guides and examples name modules and functions that exist."""
    texts = [*SOURCE.rglob("*.py"), *(SOURCE.parents[1] / "examples").glob("*.py")]
    named = {str(path): path.read_text(encoding="utf-8") for path in texts} | PAGES
    missing = [
        (where, name)
        for where, text in named.items()
        for name in sorted(set(re.findall(r"\bevenhand(?:\.[A-Za-z_]\w*)+", text)))
        if not there(name)
    ]
    assert missing == []
    assert not there("evenhand.no_such_module")


PACKAGES = {
    "errors": "Errors",
    "formats": "Files",
    "measures": "Measures",
    "estimands": "What is estimated",
    "designs": "Designs",
    "sampling": "Draws and rounds",
    "priors": "Priors",
    "intervals": "Intervals",
    "estimation": "Estimates",
    "nonlinear": "Kinds of measures",
    "decisions": "Decisions",
    "simulation": "Simulation",
    "study": "Studies",
    "certificates": "Certificates",
    "serving": "Serving",
}


def api() -> str:
    """The page of public names: what the guide `api` must be."""
    stub = (SOURCE / "__init__.pyi").read_text(encoding="utf-8")
    where = dict(re.findall(r"from \.\S+ import (\S+) as (\S+)", stub))
    home = {name: module for module, name in re.findall(r"from \.(\S+) import (\S+) as", stub)}
    page = ["# Public names", "", "All are imported from `evenhand`; `help(name)` says more."]
    for package, title in PACKAGES.items():
        names = [name for name in where if home[name].split(".")[0] == package]
        if names:
            page += ["", f"## {title}", "", "| name | what it is |", "| --- | --- |"]
        for name in sorted(names, key=str.lower):
            first = (inspect.getdoc(getattr(evenhand, name)) or "").split("\n\n")[0]
            page.append(f"| `{name}` | {' '.join(first.split()).replace('|', chr(92) + '|')} |")
    return "\n".join(page) + "\n"


def test_the_page_of_names_is_up_to_date():
    """Run this file with Python to write it."""
    assert PAGES["api.md"] == api()
    assert PAGES["api.md"].count("\n| `") == len(evenhand.__all__)


FUNCTIONS = [
    name for name in evenhand.__all__ if inspect.isroutine(inspect.unwrap(getattr(evenhand, name)))
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_says_what_it_takes_and_shows_a_use(name):
    function = inspect.unwrap(getattr(evenhand, name))
    text = inspect.getdoc(function) or ""
    assert "Parameters\n---" in text
    taken = [p for p in inspect.signature(function).parameters if not p.startswith("_")]
    assert [p for p in taken if not re.search(rf"\b{p}\b", text)] == []
    if name != "serve":  # it runs until it is stopped
        assert ">>> " in text


if __name__ == "__main__":
    (SOURCE / "guides" / "api.md").write_text(api(), encoding="utf-8")
