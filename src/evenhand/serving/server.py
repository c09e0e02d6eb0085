"""The server: a study's pages on a port, until it is stopped."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow.parquet as pq
import uvicorn
from filelock import FileLock, Timeout

from evenhand.decisions.stopping import check_rule
from evenhand.errors import EvenhandError, FormatError, StudyError, listed
from evenhand.formats.corpora import Text, Texts, read_topics
from evenhand.intervals.confidence import check_level
from evenhand.measures.grammar import sampled
from evenhand.serving.access import Access, read_secret
from evenhand.serving.answers import Desk
from evenhand.serving.live import Live
from evenhand.serving.pages import Grade, Site, make_app
from evenhand.serving.predictions import Predictions
from evenhand.studies import study_files

__all__ = ["PORT", "Served", "links", "open_site", "serve"]

#: The port, unless another is asked for.
PORT = 8765

_NAMES = ("localhost", "127.0.0.1", "[::1]")
Lookup = Callable[[str], Text | None]

_YES_NO = {0.0: "not relevant", 1.0: "relevant"}


@dataclass(frozen=True, slots=True)
class Served:
    """Where the pages are.

    Attributes
    ----------
    url
        Of the server.
    assessors
        Each assessor's link.
    live
        Link of the researchers' page.
    notes
        What the researcher should know, a sentence each.
    """

    url: str
    assessors: dict[str, str]
    live: str
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"judge ({name}): {link}" for name, link in self.assessors.items()]
        return "\n".join([*lines, f"live: {self.live}", *(f"note: {note}" for note in self.notes)])


def serve(
    study: str | Path,
    *,
    docs: str | Path | None = None,
    queries: str | Path | None = None,
    guidelines: str | Path | None = None,
    labels: Mapping[float, str] | None = None,
    predictions: str | Path | None = None,
    assessors: Sequence[str] = ("assessor",),
    overlap: int = 1,
    host: str = "127.0.0.1",
    port: int = PORT,
    url: str | None = None,
    level: float = 0.95,
    stop_when: str | None = None,
    tell: Callable[[Served], Any] = print,
) -> None:
    """Serve a study's judging page until the process is stopped.

    Every answer of an assessor is in the study's store before it is acknowledged. The server may be
    killed at any moment and started again; links stay good.

    Parameters
    ----------
    study
        Folder of the study.
    docs, queries
        Texts of documents and queries; see `evenhand.formats.corpora`.
    guidelines
        What assessors are to go by: plain text, or a little of markdown.
    labels
        Name of each grade. Without grades in the study's settings these are the grades; by default
        0 and 1.
    predictions
        Predicted grades (``qid docid value``), each shown to an assessor who asks for it.
        Assessors who have seen one judge towards it. By default none is offered.
    assessors
        Who judges, by name.
    overlap
        How many of them are to judge each pair.
    host, port
        Where to listen; port 0 takes a free one. On another host than this one's own (loopback),
        and with several assessors, each needs his link.
    url
        The address under which a proxy shows the server to others, as ``https://judge.example.org``.
    level, stop_when
        Of the intervals on the live page, and its rule to stop (`evenhand.decisions.stopping`); by
        default ``best`` for that goal, else ``decided``.
    tell
        Called with the links once the port is taken.

    Raises
    ------
    StudyError
        If the folder is no study, or is served already.
    FormatError
        If a file cannot be read as what it should be.
    EvenhandError
        If an option cannot be used, or the port is taken.
    """
    folder = Path(study)
    check_level(level)
    rule = _rule(stop_when, folder)
    with _alone(folder), closing(_listening(host, port)) as listener:
        port = listener.getsockname()[1]
        with open_site(
            folder,
            docs=docs,
            queries=queries,
            guidelines=guidelines,
            labels=labels,
            predictions=predictions,
            assessors=assessors,
            overlap=overlap,
            host=host,
            url=url,
            options={"level": level, "stop_when": rule},
        ) as site:
            tell(links(site, host, port, url))
            _run(site, listener)


def _rule(stop_when: str | None, folder: Path) -> str:
    """The rule to stop: by default that of the study's goal."""
    goal = study_files.read_settings(folder).goal
    rule = stop_when or ("best" if goal == "best" else "decided")
    check_rule(rule)
    return rule


def _run(site: Site, listener: socket.socket) -> None:
    """Serve the pages of a site, until interrupted."""
    config = uvicorn.Config(
        make_app(site),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=5,
        limit_concurrency=500,
    )
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])


@contextmanager
def open_site(
    folder: Path,
    *,
    docs: str | Path | None = None,
    queries: str | Path | None = None,
    guidelines: str | Path | None = None,
    labels: Mapping[float, str] | None = None,
    predictions: str | Path | None = None,
    assessors: Sequence[str] = ("assessor",),
    overlap: int = 1,
    host: str = "127.0.0.1",
    url: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Iterator[Site]:
    """What the pages of a study are made of, closed at the end; arguments as for `serve`.

    `options` are those of the live page's estimates.
    """
    settings = study_files.read_settings(folder)
    _check_assessors(assessors, overlap)
    local, proxy = _is_loopback(host), _split(url)
    guide = _read_text(guidelines)
    grades = _grades(settings, labels)
    predicted = None if predictions is None else Predictions(predictions).get
    access = Access(
        read_secret(folder / "serving.key"),
        assessors,
        open=local and proxy is None and len(assessors) == 1,
    )
    with ExitStack() as stack:

        def texts(path: str | Path, wanted: Callable[[], set[str]], name: str) -> Lookup:
            return stack.enter_context(closing(Texts(Path(path), wanted, name=name))).get

        topics = None if queries is None else read_topics(Path(queries))
        query = None if topics is None else topics.get
        if queries is not None and query is None:
            query = texts(queries, lambda: _query_ids(folder), "queries")
        document = None
        if docs is not None:
            document = texts(docs, lambda: _document_ids(folder), "corpus")
        yield Site(
            desk=stack.enter_context(closing(Desk(folder, assessors, overlap=overlap))),
            live=stack.enter_context(closing(Live(folder, options or {}))),
            access=access,
            title=folder.resolve().name.encode("utf-8", "replace").decode(),
            grades=grades,
            query=query,
            document=document,
            predicted=predicted,
            guidelines=guide,
            hosts=(*_NAMES, *([proxy[1]] if proxy else [])) if local else (),
            proxy="" if url is None else urlsplit(url).netloc.lower(),
            secure=proxy is not None and proxy[0] == "https",
        )


def links(site: Site, host: str, port: int, url: str | None = None) -> Served:
    """The links of a site that listens on a port."""
    if url is None:
        shown = socket.gethostname() if host in ("0.0.0.0", "::", "") else host
        url = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}"
    url, access = url.rstrip("/"), site.access
    notes = []
    if not url.startswith("https:") and not _is_loopback(host):
        notes.append(
            "links and judgments go unencrypted over the network: where others could listen, put a "
            "proxy with a certificate before it (--url https://...), or use a tunnel"
        )
    if access.open:
        return Served(url, {access.assessors[0]: f"{url}/"}, f"{url}/live", tuple(notes))
    own = {name: f"{url}/enter?token={access.token(name)}" for name in access.assessors}
    return Served(url, own, f"{url}/enter?token={access.token('')}", tuple(notes))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    lock = FileLock(folder / "serving.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise StudyError(
            f"{folder} is being served already", hint="use that server, or stop it first"
        ) from error
    except OSError as error:
        raise StudyError(
            f"cannot write into {folder}: {error.strerror}", hint="make the folder writable"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _listening(host: str, port: int) -> socket.socket:
    if not 0 <= port < 65536:
        raise EvenhandError(f"a port lies between 0 and 65535, got {port}", hint="--port 8765")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named asyncio has answers sent at once, and not 40 ms later.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # A link that is followed before the pages are ready waits for them, and is not refused.
        listener.listen(128)
    except (OSError, UnicodeError) as error:
        listener.close()
        raise EvenhandError(
            f"cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}",
            hint="--port 0 takes a free port",
        ) from error
    return listener


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _split(url: str | None) -> tuple[str, str] | None:
    """Scheme and host of the address that a proxy has."""
    if url is None:
        return None
    parts = urlsplit(url)
    plain = not (parts.path.strip("/") or parts.query or parts.fragment or parts.username)
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
        raise EvenhandError(
            f"expected the address of a server, got {url!r}", hint="--url https://judge.example.org"
        )
    name = parts.hostname
    return parts.scheme, f"[{name}]" if ":" in name else name


def _check_assessors(assessors: Sequence[str], overlap: int) -> None:
    odd = [name for name in assessors if not name.strip() or len(name) > 100 or "\n" in name]
    if odd or not assessors:
        raise EvenhandError(
            f"an assessor needs a name of at most 100 characters, got {listed(odd) or 'none'!r}",
            hint="--assessor NAME",
        )
    if len(set(assessors)) != len(assessors):
        raise EvenhandError(
            f"assessors need different names, got {listed(list(assessors))}",
            hint="--assessor NAME, once for each",
        )
    if not 1 <= overlap <= len(assessors):
        raise EvenhandError(
            f"{overlap} of {len(assessors)} assessors cannot judge each pair",
            hint="--overlap at most as many as there are --assessor",
        )


def _grades(settings: study_files.Settings, labels: Mapping[float, str] | None) -> list[Grade]:
    named = {float(value): text for value, text in (labels or {}).items()}
    values = settings.grades or tuple(sorted(named)) or tuple(_YES_NO)
    unknown = sorted(set(named) - set(values))
    if unknown:
        raise EvenhandError(
            f"the study has no grade {unknown[0]:g}; its grades are "
            f"{listed([f'{value:g}' for value in values])}",
            hint="label only these",
        )
    sampled(settings.measure).utility(np.asarray(values))  # refuses what it can make nothing of
    if not named and tuple(values) == tuple(_YES_NO):
        named = _YES_NO
    digits = all(value in range(10) for value in values)
    return [
        Grade(
            value,
            f"grade:{value!r}",
            named.get(value, ""),
            f"{value:g}" if digits else str(place) if place < 10 else "",
        )
        for place, value in enumerate(values, start=1)
    ]


def _document_ids(folder: Path) -> set[str]:
    """Ids of the documents of the study's pool, which needs no pool to be made."""
    found: set[str] = set()
    for path in study_files.system_files(folder):
        column = pq.read_table(path, columns=["doc_id"])["doc_id"]
        found.update(column.unique().to_pylist())
    return found


def _query_ids(folder: Path) -> set[str]:
    return set((folder / "queries.txt").read_text(encoding="utf-8").split("\n"))


def _read_text(path: str | Path | None) -> str:
    if path is None:
        return ""
    try:
        return Path(path).read_bytes()[: 1 << 20].decode("utf-8", "replace")
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from error
