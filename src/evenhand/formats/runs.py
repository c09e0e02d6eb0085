"""What the systems returned: one table of all runs, in the order in which measures see it."""

from __future__ import annotations

import html
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from evenhand.errors import EvenhandError, FormatError
from evenhand.formats import frames, parsing
from evenhand.formats.ids import intern, ranking, ranks, repeats
from evenhand.formats.reading import Part, read
from evenhand.formats.sources import expand

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Runs", "read_runs"]

_THREADS = os.cpu_count() or 1  # pyarrow and NumPy let go of Python's lock while they work

LAYOUT = parsing.Layout(
    fields=("qid", "Q0", "docid", "rank", "score", "tag"),
    ids=("qid", "docid", "tag"),
    numbers=("score",),
    hints={
        3: "a run has six fields a line; this looks like qrels or a table without its header",
        4: "this looks like qrels (qid iter docid grade): give it as the judgments",
        5: "a field is missing or empty; a run has six fields a line",
        7: "the tag is one word: remove the text after it",
    },
)


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Rankings of one or more systems, one row a returned document.

    Rows are sorted by system, query and rank; n is their number. Ids are integer codes here:
    ``query[i]`` is an index into `queries`.

    Parameters
    ----------
    systems
        Names, in the order in which they were given.
    queries, documents
        The distinct ids, sorted by bytes, so that comparing codes compares ids.
    system, query, document
        Codes; int32 [n].
    score
        As returned; float64 [n].
    rank
        1, 2, ... within a system and query, counted anew: score descending, ties by document id
        descending; int32 [n].
    notes
        What was noticed while reading, a sentence each.
    """

    systems: tuple[str, ...]
    queries: pa.StringArray
    documents: pa.StringArray
    system: np.ndarray
    query: np.ndarray
    document: np.ndarray
    score: np.ndarray
    rank: np.ndarray
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.system)

    def select(self, systems: str | Iterable[str]) -> Runs:
        """Keep some systems, in the order given.

        The ids stay as they are, so codes before and after mean the same queries and documents.

        Parameters
        ----------
        systems
            Names, each once.

        Raises
        ------
        EvenhandError
            A name that no system has, or a name twice.
        """
        wanted = (systems,) if isinstance(systems, str) else tuple(systems)
        unknown = [name for name in wanted if name not in self.systems]
        if unknown:
            raise EvenhandError(
                f"no system is named {', '.join(unknown)}",
                hint=f"the systems are {', '.join(self.systems)}",
            )
        if len(set(wanted)) < len(wanted):
            raise EvenhandError(f"a system is named twice: {', '.join(wanted)}")
        old = [self.systems.index(name) for name in wanted]
        starts = np.searchsorted(self.system, old, side="left")
        stops = np.searchsorted(self.system, old, side="right")
        rows = np.concatenate(
            [np.arange(a, b) for a, b in zip(starts, stops, strict=True)] or [np.empty(0, np.int64)]
        )
        return replace(
            self,
            systems=wanted,
            system=np.repeat(np.arange(len(wanted), dtype=np.int32), stops - starts),
            query=self.query[rows],
            document=self.document[rows],
            score=self.score[rows],
            rank=self.rank[rows],
        )

    def to_frame(self) -> pd.DataFrame:
        """Make a pandas data frame: system, query, document, rank, score."""
        import pandas as pd

        def named(codes: np.ndarray, names: Iterable[str]) -> pd.Categorical:
            return pd.Categorical.from_codes(codes, pd.Index(list(names), dtype="str"))

        return pd.DataFrame(
            {
                "system": named(self.system, self.systems),
                "query": named(self.query, self.queries.to_pylist()),
                "document": named(self.document, self.documents.to_pylist()),
                "rank": self.rank,
                "score": self.score,
            }
        )

    def _counts(self) -> dict[str, int]:
        return {
            "systems": len(self.systems),
            "queries": len(self.queries),
            "documents": len(self.documents),
            "rows": len(self),
        }

    def __repr__(self) -> str:
        return f"Runs({', '.join(f'{count:,} {name}' for name, count in self._counts().items())})"

    def _repr_html_(self) -> str:
        names = ", ".join(self.systems[:10]) + (", ..." if len(self.systems) > 10 else "")
        rows = "".join(
            f"<tr><th>{name}</th><td>{count:,}</td></tr>" for name, count in self._counts().items()
        )
        return f"<table><caption>Runs: {html.escape(names)}</caption>{rows}</table>"


def read_runs(
    *sources: Any,
    order: str = "score",
    names: Sequence[str] | None = None,
) -> Runs:
    """Read runs: the rankings of one or more systems.

    Parameters
    ----------
    *sources
        Each a path, a glob, a folder (its files, sorted), a mapping ``{qid: {docid: score}}``, a
        data frame, a list of these, or ``{system name: any of these}``. Files are TREC runs (``qid
        Q0 docid rank score tag``), JSON, CSV or TSV with a header, or Parquet; ``.gz`` is read as
        it is.
    order
        ``"score"``: score descending as float64, ties by document id descending (bytes), whatever
        the rank column says. ``"rank"``: the rank column ascending, ties likewise.
    names
        The systems' names, in the order of the sources. Otherwise a system is named by its tag, by
        its file where two files share a tag (with a note), by its file without the extension or as
        ``run-1`` where there is no tag.

    Returns
    -------
    Runs
        All systems in one table.

    Raises
    ------
    FormatError
        A source that is missing or malformed (file, line and text are named), a document that a
        system returned twice for a query, or two systems of one name.

    Examples
    --------
    >>> runs = read_runs({"bm25": {"q1": {"d7": 2.5, "d3": 4.0, "d9": 2.5}}})
    >>> runs.to_frame()
      system query document  rank  score
    0   bm25    q1       d3     1    4.0
    1   bm25    q1       d9     2    2.5
    2   bm25    q1       d7     3    2.5
    """
    if order not in ("score", "rank"):
        raise EvenhandError(f'expected the order "score" or "rank", got {order!r}')
    roles = {"query": "id", "document": "id", "score": "number", "system": "name"}
    layout = LAYOUT
    if order == "rank":
        roles, layout = roles | {"rank": "number"}, replace(LAYOUT, numbers=("rank", "score"))
    entries = expand(sources, "run")
    with ThreadPoolExecutor(_THREADS) as pool:
        parts = list(pool.map(lambda entry: read(entry, "score", roles, lambda _: layout), entries))
        blocks = [block for part in parts for block in _blocks(part)]
        systems, notes = _named(blocks, names)
        return _assemble(parts, blocks, systems, notes, pool.map)


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """One system's rows of a part: all of them where `rows` is None."""

    part: Part
    name: str
    given: bool  # by the user, so it stays
    instead: str  # the name where another run has the same tag
    rows: np.ndarray | None
    size: int


def _blocks(part: Part) -> list[_Block]:
    """Cut a part by its tags, in order of appearance."""
    source, n = part.source, len(part)
    tags = part.texts("system").to_pylist()
    if len(tags) > 1:
        if source.name is not None:
            raise FormatError(
                f"{source.place}: holds {len(tags)} systems, and one name was given: {source.name}",
                hint="give it without a name: each tag is a system",
            )
        codes = part.codes("system")
        by_tag = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
        return [
            _Block(part, tag or source.stem, False, f"{source.stem}:{tag}", rows, len(rows))
            for tag, rows in zip(tags, by_tag, strict=True)
        ]
    if source.name is not None:
        return [_Block(part, source.name, True, source.stem, None, n)]
    tag = tags[0] if tags else ""
    return [_Block(part, tag or frames.stem_of(source.stem), False, source.stem, None, n)]


def _named(
    blocks: Sequence[_Block], names: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give each block its system's name, and say what was decided."""
    notes = []
    for part, several in groupby(blocks, key=lambda block: block.part.source):
        tags = [block.name for block in several]
        if len(tags) > 1:
            notes.append(
                f"{part.place} holds {len(tags)} systems, by their tags: {', '.join(tags)}."
            )
    if names is not None:
        if len(names) != len(blocks):
            raise EvenhandError(f"expected {len(blocks)} names, one a system, got {len(names)}")
        chosen = tuple(map(str, names))
    else:
        count = Counter(block.name for block in blocks)
        chosen = tuple(
            block.instead if count[block.name] > 1 and not block.given else block.name
            for block in blocks
        )
        for tag in (tag for tag, times in count.items() if times > 1):
            taken = [c for c, block in zip(chosen, blocks, strict=True) if block.name == tag]
            notes.append(
                f"{len(taken)} runs have the tag {tag}; they are named by their files: "
                f"{', '.join(taken)}."
            )
    for name, times in Counter(chosen).items():
        if times > 1:
            of = [b.part.source.place for c, b in zip(chosen, blocks, strict=True) if c == name]
            raise FormatError(
                f"{times} runs are named {name}: {', '.join(of)}",
                hint="rename a file, or name the runs yourself: names=[...] or {name: file}",
            )
    return chosen, tuple(notes)


def _assemble(
    parts: Sequence[Part],
    blocks: Sequence[_Block],
    systems: tuple[str, ...],
    notes: tuple[str, ...],
    each: Callable[..., Iterable[Any]],
) -> Runs:
    """Give all ids their codes and put the blocks one after another, each in its own order."""
    queries, query_codes = intern([part.texts("query") for part in parts])
    texts = [part.texts("document") for part in parts]
    documents, document_codes = intern(texts, each, groups=_THREADS)
    position = {id(part): i for i, part in enumerate(parts)}
    stops = np.cumsum([block.size for block in blocks])
    n = int(stops[-1])
    query, document, rank = (np.empty(n, np.int32) for _ in range(3))
    score = np.empty(n, np.float64)

    def fill(block: _Block, stop: int) -> bool:
        part, span = block.part, slice(stop - block.size, stop)
        i, rows = position[id(part)], slice(None) if block.rows is None else block.rows
        q = query_codes[i][part.codes("query")[rows]]
        d = document_codes[i][part.codes("document")[rows]]
        s = part.numbers("score")[rows]
        order = ranking(q, -part.numbers("rank")[rows] if "rank" in part.columns else s, d)
        if order is not None:
            q, d, s = q[order], d[order], s[order]
        query[span], document[span], score[span] = q, d, s
        rank[span] = ranks(q)
        return repeats(q, d, len(documents))

    for block, repeated in zip(blocks, each(fill, blocks, stops.tolist()), strict=True):
        if repeated:
            raise _repeated(block)
    return Runs(
        systems=systems,
        queries=queries,
        documents=documents,
        system=np.repeat(np.arange(len(blocks), dtype=np.int32), [b.size for b in blocks]),
        query=query,
        document=document,
        score=score,
        rank=rank,
        notes=notes,
    )


def _repeated(block: _Block) -> FormatError:
    """Name the documents that a system returned twice for a query."""
    part = block.part
    rows = np.arange(block.size) if block.rows is None else block.rows
    queries = part.codes("query")[rows]
    documents = intern([part.texts("document")])[1][0][part.codes("document")][rows]
    order = np.lexsort((rows, documents, queries))
    same = (np.diff(queries[order]) == 0) & (np.diff(documents[order]) == 0)
    pairs = sorted(zip(rows[order][1:][same], rows[order][:-1][same], strict=True))
    shown = [
        f"{part.place.at(int(row))}: document {part.columns['document'][int(row)]} occurs twice "
        f"in query {part.columns['query'][int(row)]}, before at {part.place.at(int(first))}"
        for row, first in pairs[:3]
    ]
    hint = "keep one row a document: a system ranks each at most once a query"
    return FormatError.collect(shown, hint=hint, total=len(pairs))
