"""Reports: what they tell is what the study says, on a page that loads nothing."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

from evenhand.cli import main
from evenhand.decisions.planning import Plan
from evenhand.decisions.ranks import ranking
from evenhand.errors import EvenhandError, StudyError
from evenhand.estimands import goals, targets
from evenhand.estimation.importance import estimate
from evenhand.reports import drawings, gather, html, methods, report_figures
from evenhand.reports.calibration import read_calibration
from evenhand.reports.facts import Facts
from evenhand.reports.plots import figure
from evenhand.reports.summary import conclude, isolated, told_apart
from evenhand.sampling.rounds import Round
from evenhand.sampling.samples import Sample
from evenhand.study import Study

N = 10  # pairs of a draw, everywhere the same, so that little is compiled
SCRIPT, ARABIC, CHINESE = "<script>alert(1)</script>", "نظام البحث", "检索系统一号"
LONG = '"><img src=x onerror=alert(1)> {{ 7 * 7 }} $\\a_1$ & ' + "long" * 30
QUERIES = ("<b>q</b>", "استعلام", "q3", "q4")
STEPS = {SCRIPT: (5, 3), ARABIC: (1, 0), CHINESE: (7, 1), LONG: (11, 5)}


def ranked(step: int, start: int, prefix: str = "") -> dict[str, dict[str, float]]:
    return {
        query: {f"{prefix}d{(step * i + q + start) % 12}": float(9 - i) for i in range(6)}
        for q, query in enumerate(QUERIES)
    }


RUNS = {name: ranked(*steps) for name, steps in STEPS.items()}
THREE = {name: RUNS[name] for name in (SCRIPT, ARABIC, CHINESE)}
PLAIN = dict(zip("abcd", RUNS.values(), strict=True))
QRELS = {
    query: {f"{x}d{d}": (q + d * d) % 3 for d in range(12) for x in ("", "x")}
    for q, query in enumerate(QUERIES)
}

VOID = {"meta", "br", "img", "link", "input", "hr", "base", "source", "embed", "col", "wbr"}


class Page(HTMLParser):
    """A page by its elements: tags must balance, as they do in every other parser's eyes."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, str] = {}
        self.open: list[tuple[str, str | None]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, attrs)
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append((tag, dict(attrs).get("id")))

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, tag
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        for tag, name in self.open:
            key = f"#{name}" if name else tag
            self.text[key] = self.text.get(key, "") + data

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]

    def table(self, name: str) -> list[dict[str, str]]:
        """A table of the page, by its CSV."""
        return list(csv.DictReader(io.StringIO(self.text[f"#{name}-csv"])))


def make(folder: Path, runs=THREE, *, measure: str = "DCG@5", **options) -> Study:
    return Study.create(folder, runs, measure=measure, **options)


def judged(folder: Path, runs=THREE, n: int = N, **options) -> Study:
    study = make(folder, runs, **options)
    study.draw(n, seed=1)
    study.judge(QRELS)
    return study


def report(study: Study, **options) -> Page:
    path = study.report(**options)
    return Page(path.read_text(encoding="utf-8"))


def facts(study: Study, **options) -> Facts:
    return gather.gather(study._snapshot(), study.store.read(), **options)


def run(*words) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, [str(word) for word in words])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def rounds(folder) -> Study:
    """Two rounds, the second designed after the first was judged; and a copy from before it."""
    study = judged(folder / "rounds", RUNS, grades=(0, 1, 2))
    shutil.copytree(study.folder, folder / "first")
    study.draw(N, seed=2, sampler="iid")
    study.judge(QRELS)
    return study


@pytest.fixture(scope="module")
def told(rounds) -> Facts:
    return facts(rounds)


@pytest.fixture(scope="module")
def text(rounds, folder) -> str:
    status, out, err = run("report", rounds.folder, "--figures", folder / "figures")
    assert (status, err) == (0, "")
    assert out == f"{rounds.folder / 'report.html'}\n"
    return (rounds.folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(text) -> Page:
    return Page(text)


# What it tells


@pytest.mark.parametrize("options", [(), ("--level", "0.8", "--for", "population")])
def test_numbers_are_those_of_estimate(rounds, tmp_path, options):
    status, out, _ = run("estimate", rounds.folder, "--format", "json", *options)
    assert status == 0
    found = json.loads(out)
    path = tmp_path / "r.html"
    assert run("report", rounds.folder, "--output", path, *options)[0] == 0
    page = Page(path.read_text(encoding="utf-8"))
    columns = ("estimate", "std_error", "low", "high")
    for name, kind, more in (("systems", "system", ("covered",)), ("contrasts", "contrast", ())):
        rows = {row[kind]: row for row in page.table(name)}
        assert len(rows) == len(found[name]) == 4
        for row in found[name]:
            for column in (*columns, *more):
                assert float(rows[row[kind]][column]) == row[column], (row, column)
    (weights,) = page.table("weights")
    assert float(weights["ess"]) == found["diagnostics"]["ess"]
    assert float(weights["max_share"]) == found["diagnostics"]["max_weight_share"]
    shown = f"{found['level']:.0%}"
    assert f"Systems, {shown} intervals" in page.text["#systems-title"]
    where = "this set of queries" if not options else "queries like these"
    assert f"{shown}, for {where}" in page.text["dd"]


def test_tables_show_what_their_copies_hold(text, page):
    for name in ("systems", "contrasts", "standings", "looks", "drawn"):
        rows = page.table(name)
        (shown,) = re.findall(rf'aria-labelledby="{name}-title">(.*?)</table>', text, re.S)
        cells = [
            re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)
            for row in re.findall(r"<tr>(.*?)</tr>", shown.split("<tbody>")[1], re.S)
        ]
        assert len(cells) == len(rows) > 0
        for got, row in zip(cells, rows, strict=True):
            for have, want in zip(got, row.values(), strict=True):
                if re.fullmatch(r"-?\d+\.\d+", want) and not have.startswith("&lt;"):
                    digits = len(have.partition(".")[2])
                    assert float(have.replace("−", "-")) == pytest.approx(
                        float(want), abs=0.51 * 10.0**-digits
                    )
        latex = page.text[f"#{name}-latex"]
        assert latex.count(r" \\") == len(rows) + 1
    assert r"\textbackslash{}a\_1\$ \&" in page.text["#systems-latex"]


def test_the_best_is_on_top_of_each_table(page):
    for name in ("systems", "contrasts", "standings"):
        values = [float(row["estimate"]) for row in page.table(name)]
        assert values == sorted(values, reverse=True)


def test_each_look_is_what_was_known_then(told, rounds, folder):
    first, last = told.looks
    assert (first.rounds, last.rounds) == (("round-001",), ("round-001", "round-002"))
    before = Study.open(folder / "first").estimate()
    np.testing.assert_array_equal(first.estimate.contrast, before.contrast)
    np.testing.assert_array_equal(first.estimate.contrast_low, before.contrast_low)
    np.testing.assert_array_equal(last.estimate.contrast, rounds.estimate().contrast)
    assert before.contrast.tolist() != last.estimate.contrast.tolist()


def test_places_are_counted_one_by_one(told, rounds):
    places = told.places
    draws: dict[tuple[str, str], int] = {}
    for one in rounds.rounds():
        for pair in zip(*rounds.pool.names(one.sample.draws), strict=True):
            draws[pair] = draws.get(pair, 0) + 1
    assert sum(draws.values()) == 2 * N
    assert max(draws.values()) > 1  # so that draws and judged pairs differ
    assert places.bins == ["1", "2", "3", "4-5"]
    for j, name in enumerate(places.systems):
        want = np.zeros((3, 4), int)
        for query, documents in RUNS[name].items():
            order = sorted(documents, key=lambda d, of=documents: -of[d])[:5]
            for rank, document in enumerate(order, 1):
                n = draws.get((query, document), 0)
                want[:, min(rank, 4) - 1] += [1, n, n > 0]
        np.testing.assert_array_equal([places.returned[j], places.drawn[j], places.judged[j]], want)


def test_weights_by_their_definition(folder):
    study = judged(folder / "weights", PLAIN, grades=(0, 1, 2))
    weights = facts(study).weights
    (one,) = study.rounds()
    w = study.target.weights(one.sample.draws)
    size = np.sqrt(((w - w.mean(1, keepdims=True)) ** 2).sum(1))
    g = size / one.sample.expected[one.sample.draws]
    np.testing.assert_allclose(weights.size, g / g.mean(), rtol=1e-12, atol=1e-14)
    assert weights.ess == pytest.approx(g.sum() ** 2 / (g**2).sum())
    assert weights.zero == (g == 0).sum()


def test_files_are_known_by_their_hashes(told, rounds, page):
    for name, digest in told.files.items():
        if name.startswith("judgments"):
            continue
        assert digest == hashlib.sha256((rounds.folder / name).read_bytes()).hexdigest()
    assert {"systems-001.parquet", "round-002/draws.parquet", "study.json"} <= set(told.files)
    said = rounds.store.read()
    rows = sorted(
        f"{q}\t{d}\t{a}\t{g}\n"
        for q, d, a, g in zip(said.query, said.document, said.assessor, said.grade, strict=True)
    )
    (digest,) = [v for k, v in told.files.items() if k.startswith("judgments")]
    assert digest == hashlib.sha256("".join(rows).encode()).hexdigest()
    assert {row["sha256"] for row in page.table("files")} == set(told.files.values())
    assert [row["seed"] for row in page.table("records")] == ["1", "2"]
    assert {"python", "evenhand", "jax", "numpyro"} <= {
        row["program"] for row in page.table("versions")
    }


# The sentence


@pytest.fixture(scope="module")
def census():
    """``(kind, spread, sign)`` to an estimate of four systems, worth 2, 2, .8 and .4, each off by
    a spread; the first two return the same."""
    weights = [
        [0.0, 2, 0, 0, 0, 0],
        [0.0, 2, 0, 0, 0, 0],
        [0.0, 0, 0, 1, 1, 1],
        [3.0, 0, 0, 0, 1, 0],
    ]
    runs = {f"s{j}": {"q": {f"d{c}": 9.0 - c for c in range(6)}} for j in range(4)}
    from evenhand.estimands.pools import pool
    from evenhand.formats.runs import read_runs

    made = pool(read_runs(runs))
    target = targets.Target(made, targets.target(made, "DCG").measure, np.array(weights).T.ravel())

    def make(kind: str, spread: float, importance=None):
        if kind == "pair":
            goal = goals.pair(target, "s2", "s0")
        else:
            goal = goals.goal(target, kind, system="s2" if kind == "baseline" else None)
        sample = Sample("distinct", np.arange(6), np.ones(6))
        found = estimate(goal, [Round(sample, np.array([0.1, 1, 0, 0, 0.1, 0.7]))])
        twins = np.eye(4)
        twins[1] = twins[0]
        covariance = twins @ (np.eye(4) * spread**2) @ twins.T
        return replace(
            found,
            covariance=covariance,
            contrast_covariance=goal.matrix @ covariance @ goal.matrix.T,
            degrees=np.full(4, 1e6),
            evidence=replace(found.evidence, added=[(covariance, 1e6)]),
        )

    return make


def concluded(found, needed: int | None = 137):
    asked = []

    def planner(**aim):
        asked.append(aim)
        return Plan("", needed, 0.95, {}, 0.0, () if needed else ("it cannot be",))

    return conclude(found, ranking(found), "", planner), asked


def test_what_is_certain_is_said_so(census):
    said, asked = concluded(census("rank", 0.0))
    assert said.clauses[0] == "s0 (and s1, which returns the same) is the best of 4 systems"
    assert said.clauses[1] == "it beats s2, the next, by 1.2 exactly in DCG"
    assert said.clauses[2] == "5 of 5 pairs are decided"
    assert not asked
    assert said.needed is None


def test_what_cannot_be_told_is_said_and_what_would_decide(census):
    found = census("rank", 0.3)  # differences of spread .42: 1.2 and 1.6 are told from 0, .4 not
    said, asked = concluded(found)
    compared = found.pairs
    i = compared.names.index("s0 - s2")
    half = (compared.high_all[i] - compared.low_all[i]) / 2
    assert said.clauses[1] == f"it beats s2, the next, by 1.20 ± {half:.2f} in DCG"
    assert said.clauses[2] == "4 of 5 pairs are decided"
    assert not asked  # the leader is known
    said, asked = concluded(census("order", 0.3))
    assert said.clauses[-1] == "about 140 more judgments would decide"
    assert said.needed == 137
    ((aim),) = asked
    assert aim["effect"] == pytest.approx(0.4)
    assert aim["power"] == 0.8
    assert stats.norm.ppf(0.5 + aim["level"] / 2) == pytest.approx(compared.multiplier)
    said, _ = concluded(census("order", 0.3), needed=None)
    assert "judgments" not in str(said)
    assert (
        said.remarks[-1]
        == "No number of judgments in one further round would decide: it cannot be."
    )
    assert said.needed is None


def test_a_leader_who_may_be_none(census):
    said, asked = concluded(census("rank", 1.0))
    assert said.clauses[0] == (
        "No system is shown to be the best; s0 (and s1, which returns the same) leads"
    )
    assert said.clauses[1] == "s2 and s3 cannot be told from s0"
    assert said.clauses[-1] == "about 140 more judgments would tell s0 from s2"
    assert asked[0]["effect"] == pytest.approx(1.2)
    said, asked = concluded(census("best", 1.0))
    assert asked == [{"winner": 0.95, "level": 0.95}]
    assert said.clauses[-1] == "about 140 more judgments would decide which is the best"


def test_against_a_baseline(census):
    said, _ = concluded(census("baseline", 0.0))
    assert said.clauses == (
        "2 of 3 systems beat s2, above all s0 by 1.2 exactly in DCG",
        "s3 is worse",
    )
    said, asked = concluded(census("baseline", 0.3))
    assert said.clauses[1] == "s3 cannot be told from s2"
    assert said.clauses[2] == "about 140 more judgments would decide"
    assert asked[0]["effect"] == pytest.approx(0.4)


def test_each_alone(census):
    said, asked = concluded(census("absolute", 0.0))
    assert said.clauses[0] == "s0 has DCG 2 exactly, the highest of 4 systems"
    assert not asked


def test_a_pair_has_the_interval_of_its_own(census):
    # 1.2 is 2.2 standard errors of .55, between what one and what six differences ask for.
    found = census("pair", 0.55 / 2**0.5)
    said, asked = concluded(found)
    half = (found.compare(found.goal).high[0] - found.compare(found.goal).low[0]) / 2
    assert said.clauses == (f"s0 beats s2 by 1.2 ± {half:.1f} in DCG",)
    assert not asked
    assert "s2 cannot be told from s0" in concluded(census("rank", 0.55 / 2**0.5))[0].clauses[1]
    said, asked = concluded(census("pair", 1.0))
    assert said.clauses[0] == "s0 cannot be told from s2"
    assert said.clauses[1].startswith("it looks better by 1.2 ± ")
    assert said.clauses[2] == "about 140 more judgments would decide"
    assert asked == [{"power": 0.8, "effect": pytest.approx(1.2), "level": 0.95}]


def test_what_is_needed_is_what_a_plan_says(rounds, told):
    found, said = rounds.estimate(), told.conclusion
    leader, *rest = told.standings.systems
    compared = found.pairs
    gaps = dict(
        zip(compared.names, zip(compared.value, compared.decided, strict=True), strict=True)
    )
    for other in rest:
        value, decided = gaps.get(f"{leader} - {other}") or gaps[f"{other} - {leader}"]
        if not decided:
            break
    level = 2 * stats.norm.cdf(compared.multiplier) - 1
    plan = rounds.plan(power=0.8, effect=abs(value), level=level)
    assert said.needed == plan.needed
    if plan.needed is None:
        assert plan.notes[0] in said.remarks[-1]
    else:
        assert "more judgments would" in said.clauses[-1]


def test_names_from_right_to_left_keep_their_places():
    assert isolated("bm25") == "bm25"
    assert isolated(ARABIC) == f"\u2068{ARABIC}\u2069"
    runs = {ARABIC: RUNS[ARABIC], "نظام": RUNS[CHINESE]}
    from evenhand.estimands.pools import pool
    from evenhand.formats.runs import read_runs

    goal = goals.pair(targets.target(pool(read_runs(runs)), "DCG"), ARABIC, "نظام")
    assert list(told_apart(goal).values()) == [f"\u2068{ARABIC}\u2069 - \u2068نظام\u2069"]


# The page


def external(page: Page) -> list[str]:
    """Whatever a browser might fetch."""
    found = []
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            if name in ("src", "srcset", "data", "poster", "action", "formaction", "background"):
                found.append(f"{tag} {name}={value}")
            if name in ("href", "xlink:href") and not (value or "").startswith("#") and tag != "a":
                found.append(f"{tag} {name}={value}")
            if name == "style" and re.search(r"url\((?!#)", value or ""):
                found.append(f"{tag} {value}")
            if name.startswith("on") or name in ("ping", "srcdoc"):
                found.append(f"{tag} {name}")
    return found


def check(page: Page) -> None:
    """What holds of every report."""
    assert external(page) == []
    assert {tag for tag, _ in page.elements} & {"link", "img", "iframe", "base", "object"} == set()
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    pointed = {
        value.lstrip("#")
        for _, a in page.elements
        for name, value in a.items()
        if name in ("aria-labelledby", "aria-describedby", "data-copy")
        or (name == "href" and value.startswith("#"))
    }
    assert pointed <= set(ids)
    (policy,) = [
        a["content"] for a in page.tags("meta") if a.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert len(page.tags("script")) == 1
    digest = base64.b64encode(hashlib.sha256(page.text["script"].encode()).digest()).decode()
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert set(rules) == {"default-src", "style-src", "script-src", "base-uri", "form-action"}
    links = [a["href"] for a in page.tags("a") if not a["href"].startswith("#")]
    assert links == [methods.LINK]
    assert "url(" not in page.text["style"]
    assert "@import" not in page.text["style"]
    sections = [a["id"] for a in page.tags("h2")]
    assert sections == [
        *("asked", "answer", "estimates", "rounds", "places", "weights"),
        *("calibration", "warnings", "provenance", "methods"),
    ]


def test_the_page_loads_nothing_and_is_whole(text, page):
    check(page)
    assert text.count("http") == text.count("http-equiv") + 1  # the link of the citation
    assert len(page.tags("svg")) == 5


def test_hostile_names_are_names(text, page):
    assert len(page.tags("script")) == 1
    assert "alert(1)" not in page.text["script"]
    assert "49" not in page.text["#answer"]
    assert "{{ 7 * 7 }}" in page.text["tbody"]
    for name in STEPS:
        assert name in [row["system"] for row in page.table("systems")]
    assert "<script>alert" not in text
    assert "<img" not in text
    # In pictures, too, and as they are written: no mathematics of what stands between dollars.
    assert f">{SCRIPT.replace('<', '&lt;').replace('>', '&gt;')}</text>" in text
    assert f">{CHINESE}</text>" in text


def test_a_title_is_a_text(rounds, tmp_path):
    found = report(rounds, output=tmp_path / "r.html", title="</title><script>1</script>\x00")
    check(found)
    assert found.text["h1"] == "</title><script>1</script>\ufffd"
    assert found.text["title"].startswith("</title>")


def variables(css: str) -> dict[str, dict[str, str]]:
    """The colours of each theme; later ones stand on the light ones."""
    found = {}
    for theme, pattern in (
        ("light", r"^:root \{(.*?)\}"),
        ("dark", r"prefers-color-scheme: dark\) \{\s*:root \{(.*?)\}"),
        ("print", r"@media print \{\s*:root \{(.*?)\}"),
    ):
        (block,) = re.findall(pattern, css, re.S | re.M)
        found[theme] = found.get("light", {}) | dict(re.findall(r"--(\w+): (#\w{6})", block))
    return found


def luminance(colour: str) -> float:
    """Relative luminance by WCAG 2.2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_text_can_be_read_in_every_theme(page, theme):
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)
    css = page.text["style"]
    colours = variables(css)[theme]
    assert len(colours) == len(variables(css)["light"]) == 15
    for words in ("ink", "muted", "link"):
        for ground in ("ground", "panel"):
            assert contrast(colours[words], colours[ground]) >= 4.5, (words, ground)
    assert contrast(colours["warning"], colours["warned"]) >= 4.5
    # Shapes and the focus, of which 3 is asked.
    for shape in ("blue", "orange", "green", "rose", "amber", "sky", "focus"):
        assert contrast(colours[shape], colours["ground"]) >= 3, shape
    used = set(re.findall(r"var\(--(\w+)\)", css)) | set(drawings.COLOURS.values())
    assert used <= set(colours)
    # Numbers on a square of the darkest blue, .55 of it over the ground.
    mixed = [
        round(
            0.55 * int(colours["blue"][i : i + 2], 16)
            + 0.45 * int(colours["ground"][i : i + 2], 16)
        )
        for i in (1, 3, 5)
    ]
    assert contrast(colours["ink"], "#" + "".join(f"{x:02x}" for x in mixed)) >= 4.5


def test_no_colour_of_a_picture_is_fixed(text):
    drawn = "".join(re.findall(r"<svg.*?</svg>", text, re.S))
    assert re.findall(r"#[0-9a-fA-F]{6}\b", drawn) == []
    assert "font-family" not in drawn
    assert "<style" not in drawn


def test_a_name_that_looks_like_markup_stays_as_it_is(told):
    name = 'id="x" url(#y) : #0072b2 &amp; style="font: 1px a"'
    _, (ax,) = figure()
    ax.set_title(name)
    drawn = drawings.Picture("p", "", ax.get_figure()).svg()
    assert f">{name.replace('&', '&amp;')}</text>" in drawn
    Page(drawn)


def test_figures_are_files_too(text, folder):
    names = {path.name for path in (folder / "figures").iterdir()}
    stems = ("contrasts", "looks", "places", "systems", "weights")
    assert names == {f"{stem}.{ending}" for stem in stems for ending in ("svg", "png", "pdf")}
    for name in names:
        start = (folder / "figures" / name).read_bytes()[:8]
        assert start.startswith({"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[name[-3:]])


# Studies in every state


def test_nothing_drawn_and_nothing_judged(tmp_path):
    study = make(tmp_path / "s")
    page = report(study)
    check(page)
    assert "No answer yet: nothing has been drawn yet" in page.text["strong"]
    assert "No pairs have been drawn yet." in page.text["#methods-text"]
    assert page.tags("svg") == []
    study.draw(N, seed=1)
    page = report(study)
    check(page)
    assert f"round-001: {N} of {N} pairs are not judged yet" in page.text["strong"]
    assert "10 of 10 pairs are not judged yet" in page.text["li"]
    assert len(page.tags("svg")) == 1
    assert "systems" not in [key.split("-")[0] for key in page.text if key.endswith("-csv")]


def test_a_round_that_waits_is_left_out_and_told(rounds, tmp_path):
    folder = shutil.copytree(rounds.folder, tmp_path / "s")
    study = Study.open(folder)
    study.draw(N, seed=3)
    page = report(study)
    check(page)
    assert "round-003" in page.text["li"]
    assert [row["to_judge"] for row in page.table("rounds")][:2] == ["0", "0"]
    assert int(page.table("rounds")[2]["to_judge"]) > 0
    assert {row["after"] for row in page.table("looks")} == {"round-001", "round-002"}
    assert "drawn pairs are not judged yet" in page.text["#methods-text"]


def test_a_system_that_came_later_has_no_estimate(tmp_path):
    study = judged(tmp_path / "s")
    study.add({"late": ranked(11, 5, "x")})
    page = report(study)
    check(page)
    (row,) = [row for row in page.table("systems") if row["system"] == "late"]
    assert (row["estimate"], row["low"]) == ("", "")
    assert "late is not covered" in page.text["#answer"] + page.text["p"]
    assert "late (0%)" in page.text["li"]
    # Each contrast is to the mean of all, the late one's too: there is nothing to draw.
    assert {row["estimate"] + row["decided"] for row in page.table("contrasts")} == {""}
    assert "No contrast of the goal is covered" in page.text["p"]
    assert 'id="contrasts-figure_1"' not in (study.folder / "report.html").read_text()
    assert 'id="systems-figure_1"' in (study.folder / "report.html").read_text()


def test_one_query_and_one_system(tmp_path):
    runs = {"only": {"q": {f"d{i}": 9.0 - i for i in range(9)}}}
    study = make(tmp_path / "s", runs, measure="P@5", goal="absolute")
    study.draw(4, seed=1)
    study.judge({"q": {f"d{i}": i % 2 for i in range(9)}})
    page = report(study)
    check(page)
    assert page.text["strong"].startswith("only has P@5 ")
    assert "contrasts" not in page.text["style"]
    assert "#contrasts-csv" not in page.text
    assert "#standings-csv" not in page.text
    with pytest.raises(EvenhandError, match="one query says nothing of other queries"):
        study.report(question="population")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("measure", "said"), [("nDCG@3", "is a ratio"), ("Swaps@5", "is unbiased")]
)
def test_measures_that_are_no_sums(tmp_path, measure, said):
    runs = {name: dict(list(run.items())[:2]) for name, run in PLAIN.items()}
    study = make(tmp_path / "s", runs, measure=measure, grades=(0, 1, 2))
    study.draw(20, seed=1)
    study.judge(QRELS)
    page = report(study)
    check(page)
    assert said in page.text["#methods-text"]
    found = study.estimate().to_dict()
    rows = {row["system"]: float(row["estimate"]) for row in page.table("systems")}
    assert rows == {row["system"]: row["estimate"] for row in found["systems"]}
    weights = facts(study).weights
    assert weights.ess == pytest.approx(weights.size.sum() ** 2 / (weights.size**2).sum())
    order = [row["system"] for row in page.table("standings")]
    assert order == sorted(rows, key=rows.get, reverse=not measure.startswith("Swaps"))
    assert ("lower is better" in page.text["dd"]) == measure.startswith("Swaps")


def test_a_ratio_of_which_too_little_is_judged(tmp_path):
    study = make(tmp_path / "s", PLAIN, grades=(0, 1, 2))
    study.draw(N, seed=1)
    study.judge(QRELS)
    path = study.folder / "study.json"
    path.write_text(path.read_text().replace('"DCG@5"', '"nDCG@5"'))
    page = report(Study.open(study.folder))
    check(page)
    assert "No answer yet: nDCG@5 divides by what each query holds" in page.text["strong"]


def test_pictures_of_many_systems_can_be_read(told, tmp_path):
    rng = np.random.default_rng(0)
    runs = {
        f"${{\\y_{j:02}$": {"q": {f"d{d}": float(s) for d, s in enumerate(rng.random(8))}}
        for j in range(71)
    }
    many = facts(make(tmp_path / "s", runs, measure="P@5", goal="absolute"))
    value = rng.random(71)
    made = {"value": value, "low": value - 0.1, "high": value + 0.1}
    places = replace(many.places, drawn=many.places.returned, judged=many.places.returned)
    many = replace(
        many,
        rounds=told.rounds,
        places=places,
        estimate=replace(told.estimate, goal=many.goal, **made),
    )
    pictures = report_figures.pictures_of(many)
    assert set(pictures) == {"systems", "places"}
    for picture in pictures.values():
        ax = picture.figure.axes[0]
        low, high = sorted(ax.get_ylim())
        points = ax.get_position().height * picture.figure.get_figheight() * 72 / (high - low)
        assert points >= 1.2 * drawings.TEXT  # each name has a line of its own
        labels = ax.get_yticklabels()
        assert len([label for label in labels if label.get_text()]) == 71
        order = sorted(range(71), key=lambda j: -value[j])
        names = [label.get_text() for label in sorted(labels, key=lambda t: t.get_position()[1])]
        want = [f"${{\\y_{j:02}$" for j in order]
        assert names in (want, want[::-1])
        picture.figure.draw_without_rendering()
        boxes = [label.get_window_extent() for label in labels]
        assert min(box.x0 for box in boxes) >= 0
        assert np.diff(sorted(box.y0 for box in boxes)).min() >= 0.9 * boxes[0].height


# Methods


def test_methods_say_what_was_done(told, page):
    said = " ".join(methods.paragraph(told).split())
    for truth in (
        "DCG@5 of 4 ranking systems on 4 queries",
        "Round 1 drew 10 pairs without replacement",
        "Round 2 drew 10 pairs independently, with replacement",
        "it was designed after judgments of round 1 were seen",
        "a share of 10%",
        "importance sampling",
        "weights fixed before judging (0.26 and 0.74)",
        "at 95%, for this set of queries",
        "single-step method",
    ):
        assert truth in said, truth
    for lie in ("cross-fitted", "Bayesian", "assessors", "ratio", "queries like these"):
        assert lie not in said, lie
    assert page.text["#methods-text"] == methods.paragraph(told)
    assert "2016" in page.text["#bibtex"]


# Calibration of a learned prior


def posterior(path: Path, said, drawn, utility, *, chains: int = 1) -> Path:
    with h5py.File(path, "w") as file:
        file["observed_data/judgment"] = said
        file["posterior_predictive/judgment"] = drawn
        file["constant_data/utility"] = utility
        file["posterior/intercept"] = np.random.default_rng(0).normal(size=(chains, 50)) + (
            5.0 * np.arange(chains)[:, None]
        )
    return path


def test_calibration_by_a_plain_loop(tmp_path):
    rng = np.random.default_rng(1)
    chance = rng.random(23)
    said = (rng.random(23) < chance).astype(float)
    drawn = (rng.random((1, 60, 23)) < chance).astype(float)
    path = posterior(tmp_path / "p.nc", said, drawn, 3.0 * said)
    found = read_calibration(path, "round-002", levels=np.array([0.0, 3.0]), level=0.9)
    order = sorted(range(23), key=lambda i: 3 * sum(drawn[0, :, i]) / 60)
    assert found.judgments.tolist() == [6, 6, 6, 5]
    start = 0
    for b, n in enumerate(found.judgments):
        members = order[start : start + n]
        start += n
        means = sorted(3 * sum(drawn[0, s, i] for i in members) / n for s in range(60))
        assert found.predicted[b] == pytest.approx(sum(means) / 60)
        assert found.observed[b] == pytest.approx(3 * sum(said[i] for i in members) / n)
        assert found.low[b] == pytest.approx(np.percentile(means, 5))
        assert found.high[b] == pytest.approx(np.percentile(means, 95))
    assert found.faults == ()


def test_a_model_that_is_wrong_is_told(tmp_path):
    rng = np.random.default_rng(1)
    drawn = (rng.random((2, 200, 40)) < 0.2).astype(float)
    path = posterior(tmp_path / "p.nc", np.ones(40), drawn, np.ones(40), chains=2)
    found = read_calibration(path, "round-002")
    assert "in all where assessors said 40" in found.faults[0]
    assert "chains disagree" in found.faults[1]
    assert not found.inside.any()


def test_a_learned_round_is_calibrated(tmp_path):
    study = judged(tmp_path / "s", PLAIN, grades=(0, 1, 2))
    study.draw(N, seed=2, utility="learned")
    study.judge(QRELS)
    page = report(study)
    check(page)
    rows = page.table("calibration")
    assert {row["round"] for row in rows} == {"round-002"}
    assert sum(int(row["judgments"]) for row in rows) == N
    said = study.store.read().grade[:N]
    total = sum(int(row["judgments"]) * float(row["observed"]) for row in rows)
    assert total == pytest.approx(said.sum())
    assert "learned from all earlier judgments by a Bayesian model" in page.text["#methods-text"]
    (study.folder / "round-002" / "posterior.nc").write_bytes(b"spoiled")
    page = report(study)
    check(page)
    assert "posterior.nc cannot be read" in page.text["li"]


# What cannot be


def test_errors_are_told_and_nothing_is_written(rounds, tmp_path):
    def listing():
        return sorted(str(p) for p in tmp_path.rglob("*"))

    file = tmp_path / "file"
    file.write_text("")
    before = listing()
    for words, message in (
        (("report", tmp_path / "none"), "there is no study at"),
        (("report", rounds.folder, "--output", tmp_path / "no" / "r.html"), "there is no folder"),
        (("report", rounds.folder, "--output", file / "r.html"), "there is no folder"),
        (("report", rounds.folder, "--output", tmp_path), "is a folder"),
        (("report", rounds.folder, "--level", "2"), "the level must lie between 0 and 1"),
    ):
        status, out, err = run(*words)
        assert (status, out) == (1, "")
        assert err.startswith("error: "), err
        assert message in err, err
    status, out, err = run(
        "report", rounds.folder, "--output", tmp_path / "r.html", "--figures", file
    )
    assert (status, out) == (1, "")
    assert "cannot write into" in err
    assert listing() == before
    assert run("report", rounds.folder, "--for", "all")[0] == 2


def test_a_folder_that_may_not_be_written(rounds, tmp_path, monkeypatch):
    monkeypatch.setattr(html.os, "access", lambda path, mode: False)
    with pytest.raises(StudyError, match="cannot be written into"):
        rounds.report(tmp_path / "r.html")


def test_a_report_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "r.html"
    html.write("old", path)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(html.os, "replace", full)
        with pytest.raises(StudyError, match="No space left on device; nothing was written"):
            html.write("new", path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]
    html.write("new", path)
    assert path.read_text() == "new"


# In a browser


@pytest.mark.slow
def test_in_a_browser(rounds, tmp_path):
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no chromium on this machine")
    path = rounds.report(tmp_path / "r.html")
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        grounds = {}
        for scheme in ("light", "dark"):
            context = browser.new_context(color_scheme=scheme, offline=True)
            context.grant_permissions(["clipboard-read", "clipboard-write"])
            page = context.new_page()
            told, asked = [], []
            page.on("console", lambda message, told=told: told.append(message.text))
            page.on("pageerror", lambda error, told=told: told.append(str(error)))
            page.on("dialog", lambda dialog, told=told: told.append(dialog.message))
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.goto(path.as_uri())
            grounds[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
            for kind, start in (("csv", "system,estimate"), ("latex", "% Systems")):
                button = page.locator(f'button[data-copy="systems-{kind}"]')
                button.click()
                api.expect(button).to_have_text("Copied")
                assert page.evaluate("navigator.clipboard.readText()").startswith(start)
            # Where the clipboard is not to be had in the new way, the old one serves.
            page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
            button = page.locator('button[data-copy="methods-text"]')
            button.click()
            api.expect(button).to_have_text("Copied")
            # What has the focus is seen to have it, each stop on the way.
            page.evaluate("document.activeElement.blur()")
            for _ in range(15):
                page.keyboard.press("Tab")
                style = page.evaluate(
                    "(s => [s.outlineStyle, parseFloat(s.outlineWidth)])"
                    "(getComputedStyle(document.activeElement))"
                )
                assert style[0] == "solid"
                assert style[1] >= 2
            # Nothing is wider than the page, on a telephone either.
            for width in (1100, 360):
                page.set_viewport_size({"width": width, "height": 700})
                assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.emulate_media(media="print")
            page.set_viewport_size({"width": 680, "height": 900})  # A4 without its margins
            assert page.evaluate("document.documentElement.scrollWidth") <= 680
            assert page.locator("nav").is_hidden()
            white = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert white == "rgb(255, 255, 255)"
            assert len(page.pdf(format="A4")) > 20_000
            assert (told, asked) == ([], [path.as_uri()])
            context.close()
        browser.close()
    assert grounds == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}
