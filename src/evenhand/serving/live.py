"""Estimates for the researcher's page, made in a process of their own.

JAX takes seconds to load and both cores to compile; in another process, and one of low priority,
that keeps nobody from judging. The process is started when the live page is first asked for; it
reads one request a line, answers one line of JSON, and ends when its input does: with the server,
however that ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Live", "LiveEstimate", "answers"]


class LiveEstimate(NamedTuple):
    """What there is to show now.

    Attributes
    ----------
    found
        The JSON of ``evenhand estimate``, None where there is none yet.
    error
        Why there is none, or no newer one; else "".
    at
        When it was made, seconds since 1970.
    busy
        Whether a newer one is being made.
    """

    found: dict[str, Any] | None
    error: str
    at: float
    busy: bool


class Live:
    """Estimates of a study, kept until what they are made from changes.

    Parameters
    ----------
    folder
        The study.
    options
        Of `evenhand.study.Study.estimate`.
    """

    def __init__(self, folder: Path, options: Mapping[str, Any]) -> None:
        self._request = json.dumps({"study": str(folder), "options": dict(options)}) + "\n"
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._basis: object = None
        self._answer = LiveEstimate(None, "", 0.0, False)

    def look(self, basis: object) -> LiveEstimate:
        """The latest answer, at once; a newer one is begun if `basis` is not what it is made of."""
        with self._lock:
            if basis is not None and basis != self._basis and not self._answer.busy:
                self._answer = self._answer._replace(busy=True)
                threading.Thread(target=self._renew, args=(basis,), daemon=True).start()
            return self._answer

    def close(self) -> None:
        """End the process."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
                self._process.wait()
                for pipe in (self._process.stdin, self._process.stdout):
                    if pipe is not None:
                        with suppress(OSError):
                            pipe.close()
                self._process = None

    def _renew(self, basis: object) -> None:
        made: object = basis
        try:
            found = json.loads(self._ask())
            error = found.get("error", "")
        except (OSError, ValueError):
            found, error = {"error": ""}, "the process that estimates has ended; it is started anew"
            made = None
            self.close()
        with self._lock:
            self._basis = made
            kept = self._answer.found if "error" in found else found
            self._answer = LiveEstimate(kept, error, time.time(), False)

    def _ask(self) -> str:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", f"from {__name__} import main; main()"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            process = self._process
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            raise OSError("no pipe to the process")
        stdin.write(self._request)
        stdin.flush()
        return stdout.readline()


def answers(line: str, estimate: Callable[..., Any] | None = None) -> str:
    """Answer one request: the estimate as JSON, or its error."""
    from evenhand.errors import EvenhandError

    try:
        request = json.loads(line)
        if estimate is None:
            from evenhand.study import Study

            estimate = Study.open(request["study"]).estimate
        said = json.loads(estimate(**request["options"]).to_json())
    except EvenhandError as error:
        said = {"error": str(error)}
    except Exception as error:  # whatever it is, the page says so and the process lives on
        said = {"error": f"{type(error).__name__}: {error}"}
    return json.dumps(said)


def main() -> None:
    """Answer requests until there are no more."""
    with suppress(OSError, AttributeError):
        os.nice(10)
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever else prints is no answer
    with suppress(KeyboardInterrupt, BrokenPipeError):
        for line in sys.stdin:
            print(answers(line), file=out, flush=True)
