"""What can go wrong, as a tree.

Every error that a user can cause is an `EvenhandError`, which is a `ValueError`: what is wrong,
where, what was got, and what to do, in that order.

- `EvenhandError`
    - `FormatError`: a file or table that cannot be read as what it should be
    - `SupportError`: a question that the drawn pairs cannot answer without bias
    - `MissingJudgments`: pairs that were drawn and are not judged yet
    - `PrecisionError`: numerics that would silently lose mass in float32
    - `StudyError`: a study folder that is missing, half written, or asked for what it cannot do

An error may carry a `hint`: the cure, in one line. The command line prints both.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "EvenhandError",
    "FormatError",
    "MissingJudgments",
    "PrecisionError",
    "StudyError",
    "SupportError",
    "listed",
]


def listed(names: Sequence[str], most: int = 5) -> str:
    """Give the first few names of a list, and how many there are if more.

    >>> listed(["a", "b"]), listed("abcdefg", most=2)
    ('a, b', 'a, b, ... (7 in all)')
    """
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown}, ... ({len(names):,} in all)"


class EvenhandError(ValueError):
    """An error that the user can cure.

    Parameters
    ----------
    message
        What is wrong, where, and what was got.
    hint
        What to do about it; shown after the message.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\nhint: {self.hint}" if self.hint else message

    @property
    def message(self) -> str:
        """The message without the hint."""
        return super().__str__()


class FormatError(EvenhandError):
    """A file or table that does not have the expected format."""

    @classmethod
    def collect(
        cls, faults: Sequence[str], *, hint: str = "", total: int | None = None
    ) -> FormatError:
        """Make one error of all faults of a kind: the first three, and the count.

        Parameters
        ----------
        faults
            One line a fault, each with its place (``file:line: ...``); at least one.
        hint
            The cure for all of them.
        total
            How many there are, where `faults` holds only the first.
        """
        total = len(faults) if total is None else total
        shown = list(faults[:3])
        if total > len(shown):
            shown.append(f"... {total:,} in all")
        return cls("\n".join(shown), hint=hint)


class SupportError(EvenhandError):
    """A question that the drawn pairs cannot answer without bias."""


class MissingJudgments(EvenhandError):
    """Drawn pairs that are not judged yet."""


class PrecisionError(EvenhandError):
    """Numerics that would silently lose mass in float32."""


class StudyError(EvenhandError):
    """A study folder that is missing or incomplete, or a request that it cannot serve."""
