"""The judging page under load: assessors at once, a server that is killed, and how fast it is.

    python tests/benchmarks/serving.py kill --judgments 10000 --assessors 20 --kills 5
    python tests/benchmarks/serving.py speed --judgments 100000

`kill` lets assessors judge a whole round over HTTP while the server is killed (SIGKILL) and started
again; they send some forms twice, some once more after a while, and change some grades. Whatever
was acknowledged must be in the store, once, with the grade acknowledged last. `speed` measures a
judgment (form, answer, next page) and the page alone.
"""

from __future__ import annotations

import argparse
import html
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from evenhand.studies import round_files
from evenhand.studies.judgments import JudgmentStore
from evenhand.study import Study

FIELD = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)">')
BACK = re.compile(r'href="(/pair/\d+)" data-key="u"')


def make_study(folder: Path, pairs: int) -> Path:
    """A study with a drawn round of this many pairs, of about twenty a query, and their texts."""
    queries = max(1, pairs // 20)
    runs = {
        f"s{k}": {
            f"q{q}": {f"d{q}-{(j * 7 + k * 5) % 40}": 40.0 - j for j in range(30)}
            for q in range(queries)
        }
        for k in range(2)
    }
    study = Study.create(folder / "study", runs, measure="P@30", grades=(0, 1, 2))
    study.draw(pairs, seed=0, kind="uniform", utility="flat")
    with open(folder / "docs.tsv", "w", encoding="utf-8") as file:
        file.writelines(
            f"d{q}-{j}\ttitle {j}\t{'some text ' * 100}\n"
            for q in range(queries)
            for j in range(40)
        )
    return study.folder


@dataclass
class Server:
    """A real process of ``evenhand serve``, always on the same port."""

    folder: Path
    assessors: list[str]
    port: int = 0
    began: float = 0.0  # seconds until it answered first
    links: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.began = self.start()

    def start(self) -> float:
        """Start it, and wait until it answers; gives the seconds that took."""
        begin = time.perf_counter()
        words = [f"--assessor={name}" for name in self.assessors]
        words += [f"--port={self.port}", f"--docs={self.folder.parent / 'docs.tsv'}"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "evenhand.cli", "serve", str(self.folder), *words],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.fullmatch(r"judge \((.*)\): (\S+)\n", line):
                self.links[found[1]] = found[2]
            elif line.startswith("live: "):
                break
            else:
                self.kill()
                raise RuntimeError(line)
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{self.port}/page.css")
                return time.perf_counter() - begin
            except httpx.TransportError:
                time.sleep(0.01)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()


@dataclass
class Assessor:
    """Someone who judges until nothing is left, whatever the server does."""

    name: str
    link: str
    said: dict[int, list[float]] = field(default_factory=dict)  # acknowledged, by pair
    times: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def run(self, most: int | None = None, calm: bool = False) -> None:
        self.random = random.Random(self.name)
        self.root = self.link.split("/enter")[0].rstrip("/")
        with httpx.Client(timeout=30) as self.client:
            self.ask("GET", self.link)
            while most is None or len(self.said) < most:
                begin = time.perf_counter()
                page = self.ask("GET", f"{self.root}/").text
                form = self.form(page)
                if not form:
                    return
                self.answer(form, self.random.randrange(3))
                self.times.append(time.perf_counter() - begin)
                if not calm and self.random.random() < 0.05 and (back := BACK.search(page)):
                    again = self.ask("GET", self.root + back[1])
                    self.answer(self.form(again.text), self.random.randrange(3))

    def form(self, page: str) -> dict[str, str]:
        return {name: html.unescape(value) for name, value in FIELD.findall(page)}

    def answer(self, form: dict[str, str], grade: int) -> None:
        data = {**form, "act": f"grade:{grade}.0"}
        twice = 2 if self.random.random() < 0.1 else 1
        for _ in range(twice):
            got = self.ask("POST", f"{self.root}/answer", data)
            if got.status_code != 303:
                self.faults.append(f"{got.status_code} {data}")
                return
        known = self.said.setdefault(int(form["pair"]), [])
        if not known or known[-1] != grade:
            known.append(float(grade))

    def ask(self, method: str, url: str, data: dict[str, str] | None = None) -> httpx.Response:
        """Ask until there is an answer, with the very same request."""
        while True:
            try:
                return self.client.request(method, url, data=data)
            except httpx.TransportError:
                time.sleep(0.05)


def kill(folder: Path, *, assessors: int, kills: int) -> dict[str, float]:
    """Judge a round with a server that is killed; raises where anything is lost or doubled."""
    pairs = round_files.asked(folder, "round-001")[2]
    server = Server(folder, [f"a{k:02}" for k in range(assessors)])
    people = [Assessor(name, server.links[name]) for name in server.assessors]
    threads = [threading.Thread(target=person.run, daemon=True) for person in people]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    starts = []
    try:
        for number in range(1, kills + 1):
            while sum(len(p.said) for p in people) < len(pairs) * number / (kills + 1):
                time.sleep(0.005)
            server.kill()
            starts.append(server.start())
        for thread in threads:
            thread.join(600)
            assert not thread.is_alive()
    finally:
        server.kill()
    took = time.perf_counter() - begin
    assert not any(person.faults for person in people), [p.faults[:1] for p in people if p.faults]
    found = JudgmentStore.open(folder / "judgments.sqlite").history()
    stored: dict[tuple[str, str, str], list[float]] = {}
    rows = zip(found.query, found.document, found.assessor, found.grade.tolist(), strict=True)
    for query, document, assessor, grade in rows:
        stored.setdefault((query, document, assessor), []).append(grade)
    acknowledged = {
        (*pairs[pair], person.name): grades
        for person in people
        for pair, grades in person.said.items()
    }
    assert stored == acknowledged  # each once, and revisions in their order
    judged = Counter((query, document) for query, document, _ in stored)
    assert set(judged) == set(pairs)
    return {
        "pairs": len(pairs),
        "acknowledged": sum(map(len, acknowledged.values())),
        "by two": sum(count > 1 for count in judged.values()),
        "seconds": took,
        "slowest start": max(starts, default=0.0),
    }


def speed(folder: Path, *, most: int = 300) -> dict[str, float]:
    """Milliseconds of a judgment and of a page, alone; judgments a second of eight at once."""
    names = [f"a{k}" for k in range(8)]
    server = Server(folder, names)
    try:
        one = Assessor("a0", server.links["a0"])
        one.run(most, calm=True)
        with httpx.Client() as client:
            client.get(one.link)
            pages = []
            for _ in range(most):
                begin = time.perf_counter()
                assert client.get(f"{one.root}/").status_code == 200
                pages.append(time.perf_counter() - begin)
        people = [Assessor(name, server.links[name]) for name in names]
        threads = [threading.Thread(target=p.run, args=(most, True)) for p in people]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - begin
    finally:
        server.kill()
    return {
        "start, seconds": server.began,
        "judgment ms, one assessor": 1e3 * statistics.median(one.times),
        "page ms": 1e3 * statistics.median(pages),
        "page ms, 99 %": 1e3 * statistics.quantiles(pages, n=100)[-1],
        "judgments a second, eight": sum(len(p.said) for p in people) / took,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["kill", "speed"])
    parser.add_argument("--judgments", type=int, default=10_000)
    parser.add_argument("--assessors", type=int, default=20)
    parser.add_argument("--kills", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = make_study(Path(place), asked.judgments)
        if asked.what == "kill":
            found = kill(folder, assessors=asked.assessors, kills=asked.kills)
        else:
            found = speed(folder)
    for name, value in found.items():
        print(f"{name}: {value:,.4g}" if isinstance(value, float) else f"{name}: {value:,}")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
