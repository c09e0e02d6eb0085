"""The command line: what it prints where, its exit status, and that a failure changes nothing."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
import pytest

import evenhand
from evenhand.cli import main
from evenhand.errors import StudyError
from evenhand.studies import judgments as stores
from evenhand.studies import round_files
from evenhand.study import Study

SOURCE = str(Path(evenhand.__file__).parents[1])
N = 10  # pairs of a draw, everywhere the same, so that little is compiled

# Three systems that rank the same 12 documents in different orders for each of four queries; the
# documents of a fourth are its own.
STEPS = {"b": (5, 3), "a": (1, 0), "c": (7, 1)}
RUNS = {
    system: {
        f"q{q}": {f"d{(step * i + q + start) % 12}": float(9 - i) for i in range(6)}
        for q in range(4)
    }
    for system, (step, start) in STEPS.items()
}
RUNS["late"] = {q: {"x" + d: s for d, s in docs.items()} for q, docs in RUNS["a"].items()}
GRADES = {(f"q{q}", f"{x}d{d}"): (q + d * d) % 3 for q in range(4) for d in range(12) for x in "x "}
GRADES = {(q, d.strip()): grade for (q, d), grade in GRADES.items()}
HEADER = "qid\tdocid\tgrade"


def write(path: str | Path, text: str) -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """Runs, judgments, and studies in three states: new, drawn, and judged."""
    folder = tmp_path_factory.mktemp("world")
    for system, run in RUNS.items():
        rows = [f"{q} Q0 {d} 1 {s} {system}\n" for q, docs in run.items() for d, s in docs.items()]
        write(folder / f"{system}.run", "".join(rows))
    write(folder / "qrels", "".join(f"{q} 0 {d} {g}\n" for (q, d), g in GRADES.items()))
    files = [folder / f"{system}.run" for system in "bac"]
    study = Study.create(folder / "new", *files, measure="DCG@5", grades=[0, 1, 2])
    shutil.copytree(folder / "new", folder / "drawn")
    Study.open(folder / "drawn").draw(N, seed=1)
    shutil.copytree(folder / "drawn", folder / "judged")
    Study.open(folder / "judged").judge(folder / "qrels")
    assert len(study.store.read()) == 0
    return folder


@pytest.fixture
def here(world, tmp_path, monkeypatch) -> Path:
    """A copy of it all, to work in."""
    folder = shutil.copytree(world, tmp_path / "here")
    monkeypatch.chdir(folder)
    return folder


class Ran(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def run(capsys):
    """Run a command in this process, as the shell would."""

    def run(*words: object) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main.main([str(word) for word in words], prog_name="evenhand")
        out, err = capsys.readouterr()
        return Ran(caught.value.code or 0, out, err)

    return run


def state(folder: Path) -> dict[str, object]:
    """Every file below a folder with what it holds; of a judgment store, its rows."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.name == "judgments.sqlite":
            found[name] = history(path)
        elif path.is_file() and not path.name.startswith("judgments.sqlite-"):
            found[name] = path.read_bytes()
        elif path.is_dir():
            found[name] = None
    return found


def history(path: Path) -> list:
    try:
        return stores.JudgmentStore.open(path).history().to_frame().values.tolist()
    except StudyError as error:
        return [str(error)]


@pytest.fixture
def fails(run, here):
    """Run a command that must fail, print nothing on stdout and change no file."""

    def fails(*words: object, status: int = 1) -> str:
        before = state(here)
        ran = run(*words)
        assert ran.out == ""
        assert ran.status == status, ran.err
        assert state(here) == before
        return ran.err

    return fails


def strict(text: str) -> dict:
    """JSON without NaN and the like."""

    def never(constant: str) -> None:
        pytest.fail(f"{constant} is not JSON")

    return json.loads(text, parse_constant=never)


def asked(study: str = "drawn", number: int = 1) -> list[tuple[str, str]]:
    path = Path(study) / f"round-{number:03}" / "to_judge.tsv"
    header, *rows = path.read_text(encoding="utf-8").splitlines()
    assert header == HEADER
    return [tuple(row.split("\t")[:2]) for row in rows]


def filled(*grades: object, name: str = "j.tsv") -> str:
    """A file to judge of the study `drawn`, filled in."""
    rows = [f"{q}\t{d}\t{g}" for (q, d), g in zip(asked(), grades, strict=False)]
    return write(name, "\n".join([HEADER, *rows]) + "\n")


# What every command has


def every_command(group: click.Group, *before: str) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield (*before, name)
        if isinstance(command, click.Group):
            yield from every_command(command, *before, name)


@pytest.mark.parametrize("words", [*every_command(main)], ids=" ".join)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_command_has_help(run, words, flag):
    command = main
    for word in words:
        command = command.commands[word]
    ran = run(*words, flag)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith(f"Usage: evenhand {' '.join(words)} [OPTIONS]")
    assert command.help.splitlines()[0] in " ".join(ran.out.split())


def test_the_commands_are_listed(run):
    for flag in ("-h", "--help"):
        ran = run(flag)
        assert (ran.status, ran.err) == (0, "")
        for name in main.commands:
            assert re.search(rf"^  {name} +\S", ran.out, re.M), name
        lines = ran.out.splitlines()
        assert "    evenhand draw study --budget 500" in lines
        assert "    evenhand estimate study" in lines


def test_the_version(run):
    version = evenhand.study.importlib.metadata.version("evenhand")
    assert run("--version") == (0, f"evenhand, version {version}\n", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("frobnicate", "No such command 'frobnicate'."),
        ("--frobnicate", "No such option"),
        ("draw new", "Missing option '--budget'."),
        ("draw", "Missing argument 'STUDY'."),
        ("draw new --budget ten", "'ten' is not a valid integer."),
        ("draw new --budget 3 --seed -1", "-1 is not in the range 0<=x<=4294967295."),
        ("draw new --budget 3 --sampler all", "'all' is not one of"),
        ("draw new --budget 3 --design best", "'best' is not one of"),
        ("new s", "Missing argument 'RUN...'."),
        ("new s a.run b.run", "Missing option '-m' / '--measure'."),
        ("new s a.run b.run -m P@3 --goal worst", "'worst' is not one of"),
        (
            "new s a.run b.run -m P@3 --grades 0,x",
            "expected numbers with commas between, got '0,x'",
        ),
        ("new s a.run b.run -m P@3 --plan 1.5", "expected numbers with commas between, got '1.5'"),
        ("new s a.run b.run -m P@3 --queries none", "File 'none' does not exist."),
        ("new s a.run b.run -m P@3 --order tag", "'tag' is not one of"),
        ("judge drawn", "Missing argument 'FILE...'."),
        ("judge drawn qrels --negative maybe", "'maybe' is not one of"),
        ("estimate judged --format xml", "'xml' is not one of"),
        ("estimate judged --level much", "'much' is not a valid float."),
        ("estimate judged extra", "Got unexpected extra argument (extra)"),
        ("evaluate a.run -m P@3", "Missing option '--qrels'."),
        ("simulate a.run b.run -m P@3", "Missing option '--qrels'."),
        ("simulate a.run b.run -m P@3 --qrels qrels --budgets x", "expected numbers with commas"),
    ],
)
def test_misuse_is_told_apart_from_failure(fails, words, message):
    err = fails(*words.split(), status=2)
    assert err.startswith("Usage: evenhand ")
    assert f"\nError: {message}" in err or message in err.splitlines()[-1]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_produced(run, monkeypatch, shell):
    monkeypatch.setenv("_EVENHAND_COMPLETE", f"{shell}_source")
    ran = run()
    assert ran.status == 0
    assert "_EVENHAND_COMPLETE" in ran.out
    assert f"{shell}_complete" in ran.out


def test_commands_and_options_are_completed(run, monkeypatch):
    monkeypatch.setenv("_EVENHAND_COMPLETE", "bash_complete")
    for words, place, wanted in (
        ("evenhand e", 1, {"estimate", "evaluate", "export"}),
        ("evenhand estimate s --com", 3, {"--combine"}),
        ("evenhand estimate s --format ", 4, {"table", "json", "csv", "latex"}),
    ):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(place))
        found = {line.split(",")[1] for line in run().out.splitlines()}
        assert found == wanted


def process(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_help_waits_for_nothing(tmp_path):
    script = """if True:
        import sys, time
        start = time.perf_counter()
        from evenhand.cli import main
        for words in (["--help"], *([name, "--help"] for name in main.commands), ["--version"]):
            try:
                main.main(words, prog_name="evenhand")
            except SystemExit as end:
                assert not end.code, words
        slow = {"jax", "numpy", "pandas", "scipy", "matplotlib", "pyarrow"} & set(sys.modules)
        print(f"{time.perf_counter() - start:.3f} s", file=sys.stderr)
        sys.exit(f"imported {slow}" if slow else 0)
    """
    done = process("-c", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    print(f"all help pages took {done.stderr.strip()}, imports included")


@pytest.mark.slow
def test_debug_shows_the_traceback(tmp_path):
    message = "there is no study at none"
    debug = process("-m", "evenhand.cli", "--debug", "estimate", "none", cwd=tmp_path)
    assert (debug.returncode, debug.stdout) == (1, "")
    assert debug.stderr.startswith("Traceback (most recent call last):\n")
    assert f"StudyError: {message}\nhint: start one with `evenhand new`\n" in debug.stderr


# Runs that cannot be studied

BAD_RUNS = {
    "a missing column": (
        "q0 Q0 d1 1 a\n",
        'bad:1: expected 6 fields (qid Q0 docid rank score tag), got 5: "q0 Q0 d1 1 a"',
        "a field is missing or empty; a run has six fields a line",
    ),
    "text after the tag": (
        "q0 Q0 d1 1 3 a and more\n",
        'bad:1: expected 6 fields (qid Q0 docid rank score tag), got 8: "q0 Q0 d1 1 3 a and more"',
        "the tag is one word: remove the text after it",
    ),
    "a score that is none": (
        "q0 Q0 d1 1 3 x\nq0 Q0 d2 2 nan x\n",
        'bad:2: score is not finite, got "nan"',
        "give every row a finite score",
    ),
    "a document twice": (
        "q0 Q0 d1 1 3 x\nq0 Q0 d2 2 2 x\nq0 Q0 d1 3 1 x\n",
        "bad:3: document d1 occurs twice in query q0, before at bad:1",
        "keep one row a document: a system ranks each at most once a query",
    ),
    "nothing": ("", "bad: no rows", "the file is empty or holds only comments"),
}


@pytest.mark.parametrize("command", ["new s a.run bad -m P@3", "add drawn bad"])
@pytest.mark.parametrize("what", BAD_RUNS)
def test_a_run_that_cannot_be_read(fails, here, command, what):
    content, message, hint = BAD_RUNS[what]
    write("bad", content)
    assert fails(*command.split()) == f"error: {message}\nhint: {hint}\n"


NEW = "new s a.run b.run c.run -m P@3"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            "new s none -m P@3",
            "error: none: no such file\nhint: give a run file, a folder or a glob\n",
        ),
        (
            "new s *.none -m P@3",
            "error: *.none: matches no file\nhint: check the folder and the pattern\n",
        ),
        (
            f"{NEW} --queries others",
            "error: no run answers any query of the study\nhint: check that runs and queries "
            "(or qrels) come from the same collection\n",
        ),
        (
            "new s a.run b.run foreign -m P@3 --queries qrels",
            "error: no query of the study is answered by foreign\n"
            "hint: leave the run out, or check that it is of the same collection\n",
        ),
        (
            "new s a.run sub/a.run -m P@3",
            "error: 2 runs are named a.run: a.run, sub/a.run\nhint: rename a file, or name the "
            "runs yourself: names=[...] or {name: file}\n",
        ),
        (
            f"{NEW} --goal baseline --baseline z",
            "error: there is no system named 'z'\nhint: the systems are a, b, c\n",
        ),
        (
            f"{NEW} --goal baseline",
            "error: the goal 'baseline' needs a baseline\nhint: --baseline SYSTEM\n",
        ),
        (
            f"{NEW} --goal rank --baseline a",
            "error: the goal 'rank' takes no baseline, got 'a'\n",
        ),
        (
            f"{NEW} --goal pair",
            "error: the goal 'pair' needs two systems, got 3\n"
            "hint: give two runs, or take the goal 'rank' or 'baseline'\n",
        ),
        ("new s a.run -m P@3", "error: ranking needs at least two systems, got 1\n"),
        (
            f"{NEW} --depth 2",
            "error: P@3 looks deeper than the pool, whose depth is 2\n"
            "hint: pool the runs to the measure's cutoff\n",
        ),
        (f"{NEW} --depth 0", "error: the depth must be at least 1, got 0\n"),
        (
            f"{NEW} --plan 5,0",
            "error: a plan names at least one round of at least one draw, got [5, 0]\n",
        ),
        (
            "new drawn a.run b.run -m P@3",
            "error: drawn exists already\n"
            "hint: choose another name, or go on with `evenhand draw`\n",
        ),
        (
            "new sub a.run b.run -m P@3",
            "error: sub exists already\nhint: choose another name, or go on with `evenhand draw`\n",
        ),
        (
            "new qrels/s a.run b.run -m P@3",
            "error: cannot write into qrels: File exists\n"
            "hint: make the folder writable, or choose another place\n",
        ),
        (
            "add drawn a.run",
            "error: the study has a system named a already\nhint: rename the new run's tag\n",
        ),
        (
            "add drawn late.run c.run",
            "error: the study has a system named c already\nhint: rename the new run's tag\n",
        ),
        (
            "add drawn foreign",
            "error: no run answers any query of the study\nhint: check that runs and queries "
            "(or qrels) come from the same collection\n",
        ),
    ],
)
def test_a_study_that_cannot_be_made(fails, here, words, error):
    write("others", "z1\nz2\n")
    write("foreign", "z1 Q0 d1 1 3 foreign\n")
    write("sub/a.run", Path("a.run").read_text())
    assert fails(*words.split()) == error


@pytest.mark.parametrize("measure", ["Foo@3", "P", "P@x", "DCG(log=1)@3", "P(", "RR"])
def test_a_measure_that_is_none(fails, measure):
    err = fails("new", "s", "a.run", "b.run", "-m", measure)
    error, *rest = err.splitlines()
    assert error.startswith("error: ")
    if measure == "Foo@3":
        assert error == "error: unknown measure 'Foo@3'"
        assert rest[0].startswith("hint: known are ")


def test_notes_on_a_new_study(run, here):
    write("half", "q0 Q0 d1 1 3 half\nz9 Q0 d1 1 3 half\n")
    write("twin", Path("a.run").read_text().replace(" a\n", " twin\n"))
    words = "new s a.run twin half -m P@3 --goal absolute --queries qrels"
    assert run(*words.split()) == (
        0,
        "s: P@3, goal absolute, 3 systems, 4 queries, 12 pairs\n",
        "note: Ignored, not among the study's queries: 1 query of the runs.\n"
        "note: a and twin return the same rankings: they differ by exactly 0, whatever is judged\n"
        "note: half leaves 3 queries unanswered and earns 0 there: q1, q2, q3\n",
    )


def test_measures_that_samples_cannot_estimate(run, fails, here):
    words = ["a.run", "b.run", "--qrels", "qrels"]
    ran = run("evaluate", *words, "-m", "ndcg_cut_3", "-m", "MAE", "--format", "csv")
    assert ran.out.splitlines()[0] == "system,nDCG@3,MAE"
    for command in (["simulate", *words], ["certify", *words]):
        assert fails(*command, "-m", "ndcg@3") == (
            "error: nDCG@3 is not a sum over documents of weight by rank times utility by grade, "
            "but a ratio, whose denominator depends on every judgment of a query: this takes only "
            "sums\n"
            "hint: evaluate it with complete judgments (`evenhand evaluate`), or take DCG@3\n"
        )
    assert fails("new", "s", "a.run", "b.run", "-m", "Judged") == (
        "error: Judged is not a sum over documents of weight by rank times utility by grade, but "
        "a count of judgments: it cannot be estimated from sampled pairs\n"
        "hint: evaluate it with complete judgments (`evenhand evaluate`)\n"
    )
    assert not Path("s").exists()


# Draws that cannot be made


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--budget 0", "error: the number of pairs to draw must be at least 1, got 0\n"),
        ("--budget -5", "error: the number of pairs to draw must be at least 1, got -5\n"),
        (
            "--budget 41",
            "error: cannot draw 41 distinct pairs: the design can draw 40\n"
            "hint: a budget of that size judges every pair; `evaluate` then needs no sampling\n",
        ),
        ("--budget 10 --floor 1.1", "error: the floor must lie in [0, 1], got 1.1\n"),
        ("--budget 10 --floor -0.1", "error: the floor must lie in [0, 1], got -0.1\n"),
        ("--budget 10 --floor nan", "error: the floor must lie in [0, 1], got nan\n"),
        (
            "--budget 10 --utility oracle",
            "error: unknown utility 'oracle'\n"
            "hint: one of rank, flat, score, or a file of predicted grades (qid docid value)\n",
        ),
        (
            "--budget 10 --utility foreign",
            "error: no pair of foreign is among the 40 pairs of the pool\n"
            "hint: check that its query and document ids are those of the runs\n",
        ),
        (
            "--budget 10 --utility broken",
            'error: broken:1: grade is not a number, got "high"\n',
        ),
    ],
)
def test_a_draw_that_cannot_be_made(fails, here, words, error):
    write("foreign", "q0 0 z1 1\nz0 0 d1 2\n")
    write("broken", "q0 0 d1 high\n")
    assert fails("draw", "new", *words.split()) == error


def test_a_plan_cannot_be_exceeded(run, fails, here):
    assert run(*"new s b.run a.run c.run -m DCG@5 --plan".split(), N).status == 0
    assert run("draw", "s", "--budget", N).status == 0
    assert fails("draw", "s", "--budget", N) == (
        "error: the plan of s names 1 rounds, and all are drawn\n"
        "hint: a plan cannot be changed after the first judgment: start a new study\n"
    )


def test_a_draw(run, here):
    ran = run("draw", "new", "--budget", N, "--seed", 1)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == "Pairs to judge are in new/round-001/to_judge.tsv"
    assert (
        Path("new/round-001/to_judge.tsv").read_text()
        == Path("drawn/round-001/to_judge.tsv").read_text()
    )
    ran = run("draw", "new", "--budget", N, "--format", "json")
    answer = strict(ran.out)
    assert list(answer) == [
        *("name", "to_judge", "n_draws", "n_distinct", "n_new", "design", "sampler", "seed"),
        *("notes", "later"),
    ]
    assert answer["name"] == "round-002"
    assert answer["later"] == []
    assert answer["to_judge"] == "new/round-002/to_judge.tsv"
    assert (answer["n_draws"], answer["n_distinct"], answer["n_new"]) == (N, N, N)
    assert asked("new", 1) != asked("new", 2)


def test_a_draw_by_predicted_grades(run, here):
    write("labels", "q0 0 d1 2\nq1 0 d2 0\nq9 0 d2 0\n")
    ran = run("draw", "new", "--budget", N, "--utility", "labels", "--format", "json")
    assert strict(ran.out)["design"] == "optimal/labels"
    ran = run("draw", "new", "--budget", N, "--design", "minimax", "--format", "json")
    assert ran.err.startswith("note: worst variance ")
    assert strict(ran.out)["notes"][0].startswith("worst variance ")


# Judgments


def test_judging(run, here):
    ran = run("judge", "drawn", "qrels", "--format", "json")
    assert (ran.status, ran.err) == (0, "")
    answer = strict(ran.out)
    rows = len(GRADES)
    assert answer == {
        **{"rows": rows, "added": N, "known": 0, "revised": 0, "not_drawn": rows - N},
        **{"blank": 0, "negative": 0, "missing": {"round-001": 0}, "notes": []},
    }
    assert list(answer) == [
        *("rows", "added", "known", "revised", "not_drawn", "blank", "negative", "missing"),
        "notes",
    ]
    again = strict(run("judge", "drawn", "qrels", "qrels", "--format", "json").out)
    assert (again["added"], again["known"]) == (0, N)
    out = run("judge", "drawn", "qrels").out
    assert out.splitlines()[0] == "Judgments taken in"
    assert re.search(r"^ round-001 +0$", out, re.M)


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ("abc", 'error: j.tsv:2: grade is not a number, got "abc"\n'),
        (
            "nan",
            "error: j.tsv:2: grade is not finite, got nan\nhint: give every row a finite grade",
        ),
        (
            "3",
            "error: j.tsv:2: grade 3 is not on the study's scale\n"
            "hint: its grades are 0, 1, 2; nothing was stored\n",
        ),
        (
            "1\tann\tmore",
            'error: j.tsv:2: expected 3 fields (qid docid grade), got 5: "',
        ),
    ],
)
def test_a_grade_that_is_none(fails, here, row, error):
    error = error.replace("grade 3 is", f"grade 3 of {' '.join(asked()[0])} is")
    assert fails("judge", "drawn", filled(row, 1, 0)).startswith(error)


def test_judgments_for_another_study(run, fails, here):
    write("other", "q0 0 z1 1\nz1 0 d1 1\n")
    assert fails("judge", "drawn", "other") == (
        "error: none of the 2 judgments of other is of a pair that this study drew\n"
        "hint: are they for another study?\n"
    )
    assert fails("judge", "new", "qrels") == (
        "error: nothing has been drawn yet\nhint: evenhand draw new --budget N\n"
    )
    assert fails("judge", "drawn", "none") == (
        "error: none: no such file\nhint: give a qrels file, a folder or a glob\n"
    )
    assert fails("judge", "drawn", write("empty", "")) == (
        "error: empty: no rows\nhint: the file is empty or holds only comments\n"
    )
    assert fails("judge", "drawn", "a.run") == (
        'error: a.run:1: expected 4 fields (qid iter docid grade), got 6: "q0 Q0 d0 1 9.0 a"\n'
        'a.run:2: expected 4 fields (qid iter docid grade), got 6: "q0 Q0 d1 1 8.0 a"\n'
        'a.run:3: expected 4 fields (qid iter docid grade), got 6: "q0 Q0 d2 1 7.0 a"\n'
        "... 24 in all\n"
        "hint: this looks like a run (qid Q0 docid rank score tag): give it as a run\n"
    )


def test_a_file_half_filled_in(run, fails, here):
    ran = run("judge", "drawn", filled("", 1, "", 0, 2, "", "", "", "", ""))
    assert ran.status == 0
    assert "note: 7 rows have no grade: not judged.\n" in ran.err
    assert re.search(r"^ round-001 +7$", ran.out, re.M)
    assert fails("estimate", "drawn") == (
        "error: round-001: 7 of 10 pairs are not judged yet\n"
        "hint: evenhand judge drawn drawn/round-001/to_judge.tsv\n"
    )
    ran = run("judge", "drawn", filled(1, 1, 0, 0, 2, 1, 1, 0, 0, 0), "--format", "json")
    assert strict(ran.out)["missing"] == {"round-001": 0}
    assert run("estimate", "drawn").status == 0


@pytest.mark.parametrize(
    ("rule", "added", "negative", "note"),
    [
        ("unjudged", 1, 2, "2 rows have a negative grade: taken as not judged."),
        ("zero", 3, 0, "2 rows have a negative grade: taken as 0."),
        ("keep", 3, 0, "2 rows have a negative grade: kept as it is."),
    ],
)
def test_negative_grades(run, here, rule, added, negative, note):
    assert run("new", "s", "a.run", "b.run", "c.run", "-m", "DCG@5").status == 0
    assert run("draw", "s", "--budget", N, "--seed", 1).status == 0
    assert asked("s") == asked("drawn")
    words = ["judge", "s", filled(-1, -2, 1), "--negative", rule, "--format", "json"]
    ran = run(*words)
    answer = strict(ran.out)
    assert (answer["added"], answer["negative"]) == (added, negative)
    assert answer["missing"] == {"round-001": N - added}
    assert note in answer["notes"]
    assert f"note: {note}\n" in ran.err
    grades = sorted(Study.open("s").store.read().grade.tolist())
    assert grades == {"unjudged": [1], "zero": [0, 0, 1], "keep": [-2, -1, 1]}[rule]


def test_negative_grades_are_off_a_scale(fails, here):
    assert fails("judge", "drawn", filled(-1, 1), "--negative", "keep") == (
        f"error: j.tsv:2: grade -1 of {' '.join(asked()[0])} is not on the study's scale\n"
        "hint: its grades are 0, 1, 2; nothing was stored\n"
    )


def test_rows_given_twice(run, here):
    (q1, d1), (q2, d2) = asked()[:2]
    write("twice", f"{q1} 0 {d1} 1\n{q1} 0 {d1} 1\n{q2} 0 {d2} 0\n{q2} 0 {d2} 2\n")
    ran = run("judge", "drawn", "twice", "--format", "json")
    answer = strict(ran.out)
    assert (answer["added"], answer["known"]) == (3, 0)
    assert answer["notes"] == [
        "1 row was given twice and merged.",
        "1 pair has different grades of one assessor: counted as several assessors.",
    ]
    assert strict(run("judge", "drawn", "twice", "--format", "json").out)["known"] == 3


def test_an_assessor_who_changes_a_grade(run, fails, here):
    assert run("judge", "drawn", filled(1, 0, 2)).status == 0
    (query, document), *_ = asked()
    changed = filled(0, 0, 2, 1)
    assert fails("judge", "drawn", changed) == (
        "error: an assessor gives another grade than the stored one; nothing of j.tsv was stored\n"
        f"{query} {document}: 1, then 0\n"
        "hint: `--revise` keeps the old grade in the history and counts the new one\n"
    )
    answer = strict(run("judge", "drawn", changed, "--revise", "--format", "json").out)
    assert (answer["added"], answer["known"], answer["revised"]) == (1, 2, 1)


# Studies that are none


@pytest.mark.parametrize(
    "words",
    ["add {} a.run", "draw {} --budget 5", "judge {} qrels", "estimate {}"],
)
def test_no_study(fails, here, words):
    assert fails(*words.format("none").split()) == (
        "error: there is no study at none\nhint: start one with `evenhand new`\n"
    )
    assert fails(*words.format("qrels").split()) == (
        "error: there is no study at qrels\nhint: start one with `evenhand new`\n"
    )
    write("empty/file", "")
    assert fails(*words.format("empty").split()) == (
        "error: empty is not a whole study: "
        "it lacks study.json, queries.txt, systems-001.parquet, judgments.sqlite\n"
        "hint: is it the right folder? A study can be restored only from a copy\n"
    )


NEEDED = {
    "study.json": "error: judged/study.json is damaged: ",
    "queries.txt": "error: queries.txt or a systems-*.parquet of judged is damaged: ",
    "systems-001.parquet": "error: queries.txt or a systems-*.parquet of judged is damaged: ",
    "judgments.sqlite": "error: judged/judgments.sqlite: ",
    "round-001/round.json": "error: judged/round-001 is not a whole round: ",
    "round-001/design.parquet": "error: judged/round-001 is not a whole round: ",
    "round-001/draws.parquet": "error: judged/round-001 is not a whole round: ",
}


@pytest.mark.parametrize("damage", ["missing", "garbage", "truncated"])
@pytest.mark.parametrize("file", NEEDED)
def test_a_study_half_written(fails, here, file, damage):
    path = Path("judged", file)
    if damage == "missing":
        path.unlink()
    else:
        whole = path.read_bytes()
        path.write_bytes(b"\x00garb\xff" if damage == "garbage" else whole[: len(whole) // 2])
    for words in ("draw judged --budget 10", "judge judged qrels", "estimate judged"):
        error, *_, hint = fails(*words.split()).splitlines()
        if damage == "missing" and "/" not in file:
            assert error == f"error: judged is not a whole study: it lacks {file}"
        elif damage == "missing":
            assert error == f"{NEEDED[file]}it lacks {Path(file).name}"
        else:
            assert error.startswith(NEEDED[file])
        assert re.match("hint: .*(restore|check the path)", hint)


def test_a_study_of_a_later_format(fails, here):
    path = Path("judged/study.json")
    path.write_text(json.dumps({"format": 2, "evenhand": "9.8", "unlike": "this"}))
    for words in ("draw judged --budget 10", "judge judged qrels", "estimate judged"):
        assert fails(*words.split()) == (
            "error: judged was made by evenhand 9.8, in a later format than this version reads\n"
            "hint: upgrade evenhand\n"
        )


# Folders that cannot be written (root may write everywhere, so the failure is made)


def denied(*_, **__):
    raise PermissionError(13, "Permission denied")


def test_a_folder_that_is_read_only(fails, here, monkeypatch):
    monkeypatch.setattr(round_files.tempfile, "mkdtemp", denied)
    for words, folder in ((f"{NEW} --goal rank", "."), ("draw new --budget 10", "new")):
        assert fails(*words.split()) == (
            f"error: cannot write into {folder}: Permission denied\n"
            "hint: make the folder writable, or choose another place\n"
        )
    monkeypatch.setattr(round_files.pq, "write_table", denied)
    assert fails("add", "new", "late.run") == (
        "error: cannot write new/systems-002.parquet: Permission denied; nothing was written\n"
        "hint: free some space or make the folder writable, then run the same command again\n"
    )


def test_judgments_that_are_read_only(fails, here, monkeypatch):
    connect = sqlite3.connect

    def readonly(place, **options):
        return connect(place.replace("mode=rw", "mode=ro"), **options)

    monkeypatch.setattr(stores.sqlite3, "connect", readonly)
    err = fails("judge", "drawn", "qrels")
    assert err.startswith("error: drawn/judgments.sqlite: the file or its folder is read-only (")
    assert err.endswith(
        "; nothing of qrels was stored\nhint: make both writable, or work on a copy of the study\n"
    )


# Estimates


def test_estimates_that_cannot_be_made(fails, here):
    assert fails("estimate", "new") == (
        "error: nothing has been drawn yet\nhint: evenhand draw new --budget N\n"
    )
    assert fails("estimate", "drawn") == (
        "error: round-001: 10 of 10 pairs are not judged yet\n"
        "hint: evenhand judge drawn drawn/round-001/to_judge.tsv\n"
    )
    for level in ("0", "1", "-1", "95"):
        assert fails("estimate", "judged", "--level", level) == (
            f"error: the level must lie between 0 and 1, got {level}\nhint: --level 0.95\n"
        )


def test_the_balance_heuristic_is_refused_where_it_is_biased(run, fails, here):
    assert run("estimate", "judged", "--combine", "balance").status == 0
    assert run("draw", "judged", "--budget", N, "--seed", 2).status == 0
    assert run("judge", "judged", "qrels").status == 0
    assert fails("estimate", "judged", "--combine", "balance") == (
        "error: the balance heuristic is biased for rounds that were designed after looking: "
        "round-002\n"
        "hint: combine='planned' weights rounds by the plan, which is exactly unbiased\n"
    )


# What an estimate says on stderr when there is nothing else to say.
DIAGNOSTICS = (
    r"note: (?:importance|cross-fitted) estimates; effective sample size [0-9.]+, "
    r"largest share of one draw [0-9.]+\n"
)
KEYS = ["measure", "goal", "for", "level", "n_queries", "n_rounds", "n_draws", "n_judged"]


def test_the_json_of_an_estimate(run, here):
    ran = run("estimate", "judged", "--format", "json", "--level", "0.9")
    assert ran.status == 0
    answer = strict(ran.out)
    assert list(answer) == [
        *KEYS,
        *("systems", "contrasts", "diagnostics", "estimator", "notes"),
    ]
    assert [answer[key] for key in KEYS] == ["DCG@5", "rank", "queries", 0.9, 4, 1, N, N]
    assert [row["system"] for row in answer["systems"]] == ["b", "a", "c"]
    assert [row["contrast"] for row in answer["contrasts"]] == ["b - mean", "a - mean", "c - mean"]
    for row in answer["systems"]:
        assert list(row) == ["system", "estimate", "std_error", "low", "high", "covered"]
        assert row["covered"] == 1.0
    for row in answer["contrasts"]:
        assert list(row) == ["contrast", "estimate", "std_error", "low", "high"]
    for row in (*answer["systems"], *answer["contrasts"]):
        assert row["low"] < row["estimate"] < row["high"]
    assert list(answer["diagnostics"]) == ["ess", "max_weight_share"]
    assert answer["notes"] == []
    mean = np.mean([row["estimate"] for row in answer["systems"]])
    for system, row in zip(answer["systems"], answer["contrasts"], strict=True):
        assert row["estimate"] == pytest.approx(system["estimate"] - mean)


@pytest.mark.slow
def test_a_late_system_is_null_until_a_round_covers_it(run, here):
    ran = run("add", "judged", "late.run")
    assert ran == (0, "added late: 20 pairs that no earlier one returned\n", "")
    ran = run("estimate", "judged", "--format", "json")
    assert (ran.status, "note: 1 of 4 systems are not covered: " in ran.err) == (0, True)
    answer = strict(ran.out)
    assert answer["systems"][3] == {
        **{"system": "late", "estimate": None, "std_error": None, "low": None, "high": None},
        "covered": 0.0,
    }
    assert {row["estimate"] for row in answer["contrasts"]} == {None}
    bounds = strict(run("estimate", "judged", "--bounds", "--format", "json").out)["systems"][3]
    assert bounds["estimate"] is None
    assert 0 == bounds["low"] < bounds["high"]
    assert run("draw", "judged", "--budget", N, "--seed", 4).status == 0
    assert run("judge", "judged", "qrels").status == 0
    answer = strict(run("estimate", "judged", "--format", "json").out)
    assert [row["covered"] for row in answer["systems"]] == [1, 1, 1, 1]
    assert None not in [
        v for row in (*answer["systems"], *answer["contrasts"]) for v in row.values()
    ]


def test_only_whole_rounds_are_used_and_the_others_are_told(run, here):
    assert run("draw", "judged", "--budget", N, "--seed", 2).status == 0
    ran = run("estimate", "judged", "--format", "csv")
    left = len(asked("judged", 2))
    note = f"note: left out, round-002: {left} of 10 pairs are not judged yet\n"
    assert (ran.status, note in ran.err) == (0, True)
    assert strict(run("estimate", "judged", "--format", "json").out)["n_rounds"] == 1


def tables(text: str) -> list[list[dict[str, str]]]:
    """The tables of a CSV output."""
    return [list(csv.DictReader(io.StringIO(part))) for part in text.split("\n\n")]


def test_csv_and_latex_say_what_json_says(run, here):
    answer = strict(run("estimate", "judged", "--format", "json").out)
    systems, contrasts = tables(run("estimate", "judged", "--format", "csv").out)
    for rows, wanted in ((systems, answer["systems"]), (contrasts, answer["contrasts"])):
        assert [list(row) for row in rows] == [list(row) for row in wanted]
        for row, other in zip(rows, wanted, strict=True):
            name, *numbers = row.values()
            assert [name, *map(float, numbers)] == list(other.values())
    latex = run("estimate", "judged", "--format", "latex").out
    assert latex.count(r"\begin{tabular}{lrrrr") == latex.count(r"\end{tabular}") == 2
    rows = [line for line in latex.splitlines() if line.endswith(r"\\")]
    assert [row.count(" & ") for row in rows] == [5] * 4 + [4] * 4
    assert r"system & estimate & std\_error & low & high & covered \\" in rows
    table = run("estimate", "judged")
    assert re.fullmatch(DIAGNOSTICS, table.err)
    assert table.out.startswith("DCG@5 on this set of 4 queries, 95% intervals; 10 pairs judged, ")


@pytest.mark.slow
def test_all_pairs(run, here):
    write("twin", Path("a.run").read_text().replace(" a\n", " twin\n"))
    assert run("new", "s", "a.run", "twin", "c.run", "-m", "DCG@5").status == 0
    assert run("draw", "s", "--budget", N, "--seed", 3).status == 0
    assert run("judge", "s", "qrels").status == 0
    answer = strict(run("estimate", "s", "--pairs", "--format", "json").out)
    assert list(answer) == ["level", "multiplier", "pairs"]
    rows = {row.pop("contrast"): row for row in answer["pairs"]}
    assert list(rows) == ["a - twin", "a - c", "twin - c"]
    zero = dict.fromkeys(["estimate", "std_error", "low", "high", "low_all", "high_all"], 0.0)
    assert rows["a - twin"] == {**zero, "p": 1.0, "p_all": 1.0, "decided": "no"}
    assert rows["a - c"].pop("decided") == rows["twin - c"].pop("decided")
    assert rows["a - c"] == pytest.approx(rows["twin - c"])
    assert rows["a - c"]["low_all"] <= rows["a - c"]["low"]
    whole = strict(run("estimate", "s", "--format", "json").out)
    assert whole["contrasts"][0]["estimate"] == whole["contrasts"][1]["estimate"]
    for words, names in (
        (("--against", "c", "--plot", "c.png"), ["a - c", "twin - c"]),
        (("--against", "mean"), ["a - mean", "twin - mean", "c - mean"]),
    ):
        answer = strict(run("estimate", "s", *words, "--format", "json").out)
        assert [row["contrast"] for row in answer["pairs"]] == names
    assert Path("c.png").read_bytes().startswith(b"\x89PNG")
    assert whole["notes"] == [
        "a and twin return the same rankings: they differ by exactly 0, whatever is judged"
    ]


@pytest.mark.slow
def test_chances_of_a_model_stand_beside_those_of_estimates_that_use_it(run, here):
    assert run("draw", "judged", "--budget", 6, "--seed", 2).status == 0
    assert run("judge", "judged", "qrels").status == 0
    ask = ("estimate", "judged", "--ranks", "--format", "json")
    plain = strict(run(*ask).out)["systems"]
    both = strict(run(*ask, "--estimator", "difference").out)["systems"]
    assert [list(row)[-1] for row in (plain[0], both[0])] == ["best", "best_posterior"]
    assert sum(row["best_posterior"] for row in both) == pytest.approx(1)
    table = run("estimate", "judged", "--ranks", "--estimator", "difference").out
    assert table.startswith("Ranks, all intervals together at 95%; and the chance to be the best, ")
    assert "were values jointly normal" in table
    assert "posterior of a model that learned" in " ".join(table.split())


@pytest.mark.slow
def test_betting_intervals(run, here):
    assert run("new", "s", "a.run", "b.run", "-m", "DCG@5", "--grades", "0,1,2").status == 0
    assert run("draw", "s", "--budget", N, "--sampler", "iid", "--seed", 3).status == 0
    assert run("judge", "s", "qrels").status == 0
    ask = ("estimate", "s", "--interval", "betting")
    found = strict(run(*ask, "--format", "json").out)
    plain = strict(run("estimate", "s", "--interval", "student", "--format", "json").out)
    for row, other in zip(found["contrasts"], plain["contrasts"], strict=True):
        assert (row["estimate"], row["std_error"]) == (other["estimate"], other["std_error"])
        assert row["low"] < row["estimate"] < row["high"]
    pairs = strict(run(*ask, "--pairs", "--format", "json").out)
    assert pairs["multiplier"] is None
    assert pairs["pairs"][0]["p"] == pairs["pairs"][0]["p_all"]  # there is but one
    assert run(*ask, "--ranks").status == 0
    refused = run(*ask, "--for", "population")
    assert refused.status == 1
    assert "betting intervals are for this set of queries" in refused.err
    assert "hint: --for queries, or --interval auto" in refused.err
    assert run("draw", "s", "--budget", N, "--seed", 4).status == 0
    assert run("judge", "s", "qrels").status == 0
    refused = run(*ask)
    assert refused.status == 1
    assert "betting intervals are for one stage" in refused.err
    assert "hint: take --interval auto" in refused.err
    assert not refused.out


@pytest.mark.parametrize("name", ["x.png", "x.svg", "x.pdf"])
def test_a_picture_of_an_estimate(run, here, name):
    ran = run("estimate", "judged", "--plot", name)
    assert ran.status == 0
    assert re.fullmatch(DIAGNOSTICS, ran.err)
    content = Path(name).read_bytes()
    assert content.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[name[2:]])


def test_a_picture_that_cannot_be_written(run, here):
    for name in ("x.none", "none/x.png"):
        ran = run("estimate", "judged", "--plot", name)
        assert ran.status == 1
        assert re.match(f"{DIAGNOSTICS}error: cannot write the picture {name}: ", ran.err)
        assert ran.err.endswith("hint: try a name that ends in .png\n")
        assert not Path(name).exists()


# From runs and complete judgments


def test_the_json_of_an_evaluation(run, here):
    ran = run("evaluate", "b.run", "a.run", "--qrels", "qrels", "-m", "P@5", "--format", "json")
    answer = strict(ran.out)
    assert list(answer) == ["measure", "systems"]
    assert answer["measure"] == "P@5"
    assert [list(row) for row in answer["systems"]] == [["system", "value"]] * 2
    ran = run("evaluate", "a.run", "--qrels", "qrels", "-m", "P_5", "-q", "--format", "json")
    (system,) = strict(ran.out)["systems"]
    assert list(system) == ["system", "value", "queries"]
    relevant = [sum(GRADES[q, d] >= 1 for d in list(docs)[:5]) / 5 for q, docs in RUNS["a"].items()]
    assert system["queries"] == pytest.approx(dict(zip(RUNS["a"], relevant, strict=True)))
    assert system["value"] == pytest.approx(np.mean(relevant))
    (rows,) = tables(
        run("evaluate", "a.run", "--qrels", "qrels", "-m", "P@5", "--format", "csv").out
    )
    assert rows == [{"system": "a", "P@5": str(system["value"])}]


SIMULATE = "simulate a.run b.run c.run --qrels qrels -m DCG@5 --budgets 10 --replications 20"


@pytest.mark.slow
def test_a_simulation(run, here):
    words = [*SIMULATE.split(), "--designs", "rank,flat", "--plot", "s.png"]
    ran = run(*words, "--format", "json")
    assert ran.status == 0
    answer = strict(ran.out)
    assert list(answer)[:6] == [
        *("measure", "goal", "replications", "level", "systems", "truth"),
    ]
    assert answer["systems"] == ["a", "b", "c"]
    rows = answer["rows"]
    assert [(r["budget"], r["design"], r["sampler"]) for r in rows] == [
        *((10, "rank", "distinct"), (10, "flat", "distinct"))
    ]
    for row in rows:
        assert row["rmse"] > 0
        assert 0 <= row["coverage"] <= 1
        assert -1 <= row["tau"] <= 1
        assert len(row["mean"]) == len(row["sd"]) == 3
    assert Path("s.png").read_bytes().startswith(b"\x89PNG")
    ran = run(*words)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("DCG@5, goal rank: 3 systems, 20 replications, 95% intervals\n")
    assert len(re.findall(r"^ *10 +(?:rank|flat) +distinct", ran.out, re.M)) == 2 + 2 * 3


@pytest.mark.slow
def test_a_simulation_of_studies_that_learn(run, here):
    Path("labels.tsv").write_text("qid\tdocid\tvalue\nq1\td1\t0.5\nq1\td2\t0.25\n")
    words = SIMULATE.replace("--replications 20", "--replications 2").split()
    learn = ("--utility", "learned", "--rounds", "2,1", "--signals", "labels.tsv")
    ran = run(*words, "--designs", "rank", *learn, "--format", "json")
    assert ran.status == 0, ran.err
    rows = strict(ran.out)["rows"]
    assert [(r["design"], r["rounds"]) for r in rows] == [
        *(("rank", 1), ("learned", 2), ("learned", 1))
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--budgets 0",
            "the budget must lie between 1 and the 40 pairs that design 'naive' can draw, got 0",
        ),
        (
            "--budgets 41",
            "the budget must lie between 1 and the 40 pairs that design 'naive' can draw, got 41",
        ),
        ("--designs best", "unknown design 'best'"),
        ("--samplers all", "unknown sampler 'all'"),
        ("--systems a,z", "no system is named z"),
        ("--sample-systems 9", "cannot take 9 of 3 systems"),
        ("--replications 1", "a simulation needs at least 2 replications, got 1"),
        ("--goal baseline", "the goal 'baseline' needs a baseline"),
        ("--level 2", "the level must lie between 0 and 1, got 2"),
    ],
)
def test_a_simulation_that_cannot_be_run(fails, words, message):
    error, *_ = fails(*SIMULATE.split(), *words.split()).splitlines()
    assert error == f"error: {message}"


@pytest.mark.slow
def test_the_demo(run, fails, here):
    ran = run("demo", "--out", "demo", "--format", "json")
    assert ran.status == 0
    answer = strict(ran.out)
    assert Path(answer["picture"]).read_bytes().startswith(b"\x89PNG")
    assert list(answer)[: len(KEYS)] == KEYS
    for row in (*answer["systems"], *answer["contrasts"]):
        assert abs(row["estimate"] - row["truth"]) < 5 * row["std_error"]
    assert fails("demo", "--out", "demo") == (
        "error: demo exists already\nhint: choose another folder: --out FOLDER\n"
    )
    # The study that it made is one like any other.
    table = run("estimate", "demo/study")
    assert table.status == 0
    assert re.fullmatch(DIAGNOSTICS, table.err)
