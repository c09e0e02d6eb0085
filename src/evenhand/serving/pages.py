"""The pages over HTTP: what is shown, what is taken, and what is refused.

==================  =======================================================================
``GET /``           the pair to judge now
``GET /pair/N``     a pair that this assessor has judged or skipped, to look at it again
``GET /text/N``     the rest of a long document, part by part
``POST /answer``    a grade, a skip or a note; answers once it is on the disk
``GET /live``       rounds, estimates and notes, for researchers only
``GET /enter``      turns the token of a link into a session
==================  =======================================================================

Nothing else is known; no path or field names a file. What no page of the site sends is refused
before it comes here (`evenhand.serving.guard`). Pages need no script.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl

import jinja2
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from evenhand.errors import StudyError
from evenhand.formats.corpora import Text
from evenhand.serving.access import Access, Session
from evenhand.serving.answers import NOTE_LENGTH, Desk, Form, Outcome, Shown
from evenhand.serving.guard import Guard
from evenhand.serving.live import Live, LiveEstimate

__all__ = ["Grade", "Site", "blocks", "make_app"]

#: Characters of a document that its page shows at first, and that each further part has.
SHOWN, PART = 20_000, 100_000

_BODY = 1 << 16  # bytes of a form
_FILES = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
# What a terminal or a browser would obey instead of showing; line ends and tabs stay.
_CONTROLS = {code: "\N{REPLACEMENT CHARACTER}" for code in [*range(32), *range(127, 160)]}
_CONTROLS = {code: sign for code, sign in _CONTROLS.items() if chr(code) not in "\n\t\r\x85"}


@dataclass(frozen=True, slots=True)
class Grade:
    """A button: the grade, its name in a form, its label and its key."""

    value: float
    act: str
    label: str
    key: str


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """What the pages are made of.

    Attributes
    ----------
    desk, live, access
        See these.
    title
        Of the study.
    grades
        The buttons, in order.
    query, document
        The text of an id; None where there is no file of texts.
    predicted
        The predicted grade of a query and a document, for who asks; None where none is offered.
    guidelines
        Plain text, or a little of markdown.
    hosts
        The names by which the server may be called; none for any.
    proxy
        Host, and port where it is named, by which a proxy is called.
    secure
        Whether browsers reach it by https.
    """

    desk: Desk
    live: Live
    access: Access
    title: str
    grades: Sequence[Grade]
    query: Callable[[str], Text | None] | None = None
    document: Callable[[str], Text | None] | None = None
    predicted: Callable[[str, str], float | None] | None = None
    guidelines: str = ""
    hosts: Sequence[str] = ()
    proxy: str = ""
    secure: bool = False
    said: OrderedDict[str, Outcome] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, session: Session, outcome: Outcome) -> None:
        """Keep what became of a form for the next page of the session."""
        with self.lock:
            self.said[session.cookie] = outcome
            while len(self.said) > 1000:
                self.said.popitem(last=False)

    def told(self, session: Session) -> Outcome | None:
        """What became of the form before, once."""
        with self.lock:
            return self.said.pop(session.cookie, None)


def blocks(text: str) -> list[tuple[str, list[str]]]:
    r"""Guidelines as headings, lists and paragraphs: kind, and its lines.

    >>> blocks("# Grades\n\nBe strict.\n- 1 helps\n- 0 does not")
    [('heading', ['Grades']), ('paragraph', ['Be strict.']), ('list', ['1 helps', '0 does not'])]
    """
    found: list[tuple[str, list[str]]] = []
    fresh = True
    for line in text.splitlines():
        bare = line.strip()
        if not bare:
            fresh = True
            continue
        kind, said = "paragraph", bare
        if bare.startswith("#") and bare.lstrip("#").startswith(" "):
            kind, said = "heading", bare.lstrip("#").strip()
        elif bare[:2] in ("- ", "* ", "+ "):
            kind, said = "list", bare[2:].strip()
        if kind == "heading" or fresh or not found or found[-1][0] != kind:
            if kind == "paragraph" and not fresh and found and found[-1][0] == "list":
                found[-1][1][-1] += f" {said}"
                continue
            found.append((kind, []))
        found[-1][1].append(said)
        fresh = False
    return found


def _clean(text: str) -> str:
    return text.replace("\r\n", "\n").translate(_CONTROLS)


def make_app(site: Site) -> ASGIApp:
    """The ASGI application of a site."""
    pages = _Pages(site)
    app = Starlette(
        routes=[
            Route("/", pages.judge),
            Route("/pair/{pair:int}", pages.again),
            Route("/text/{pair:int}", pages.text),
            Route("/answer", pages.answer, methods=["POST"]),
            Route("/live", pages.live),
            Route("/enter", pages.enter),
            *(Route(f"/{name}", _file(name, kind)) for name, kind in _FILES.items()),
        ],
        exception_handlers={HTTPException: pages.refuse, StudyError: pages.failed},
    )
    app.router.redirect_slashes = False
    return Guard(app, hosts=site.hosts, proxy=site.proxy)


def _file(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    content = (files("evenhand.serving") / "static" / name).read_bytes()

    async def give(request: Request) -> Response:
        return Response(content, media_type=kind, headers={"cache-control": "max-age=300"})

    return give


class _Pages:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("evenhand.serving"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters["clean"] = _clean
        self._grades = {grade.act: grade.value for grade in site.grades}
        self._labels = {grade.value: grade.label for grade in site.grades}
        self._guidelines = blocks(site.guidelines)

    def _page(self, name: str, status: int = 200, **values: Any) -> HTMLResponse:
        template = self._templates.get_template(name)
        return HTMLResponse(template.render(study=self._site.title, **values), status)

    def _session(self, request: Request, *, live: bool = False) -> tuple[Session | None, bool]:
        """The session of a request, and whether it begins with it."""
        access = self._site.access
        session = access.resume(request.cookies.get(access.cookie_name(live)), live=live)
        if session is None and access.open:
            return access.begin("" if live else access.assessors[0]), True
        return session, False

    def _with_cookie(self, response: Response, session: Session) -> Response:
        response.set_cookie(
            self._site.access.cookie_name(not session.assessor),
            session.cookie,
            max_age=90 * 86400,
            httponly=True,
            samesite="strict",
            secure=self._site.secure,
        )
        return response

    def _unknown(self, request: Request) -> Response:
        if request.headers.get("sec-fetch-site") == "cross-site":
            # Cookies of this strictness do not come along when another page led here, but do when
            # this one leads on.
            return self._page("onward.html", to=request.url.path)
        return self._page(
            "refused.html",
            401,
            heading="Please use your own link",
            text="This page knows you by the link that you were given. Open that link again; if "
            "you have none, ask the person who runs the study.",
        )

    async def enter(self, request: Request) -> Response:
        name = self._site.access.whose(request.query_params.get("token", ""))
        if name is None:
            return self._page(
                "refused.html",
                403,
                heading="This link is not valid",
                text="It may have been cut short, or have been replaced. Ask for a new one.",
            )
        session = self._site.access.begin(name)
        return self._with_cookie(RedirectResponse("/" if name else "/live", 303), session)

    async def judge(self, request: Request) -> Response:
        session, begins = self._session(request)
        if session is None:
            return self._unknown(request)
        response = await run_in_threadpool(self._judge, session)
        return self._with_cookie(response, session) if begins else response

    def _judge(self, session: Session) -> Response:
        shown = self._site.desk.next(session.assessor)
        if shown is None:
            return self._nothing(session)
        return self._pair(session, shown, again=False)

    def _nothing(self, session: Session) -> Response:
        desk, name = self._site.desk, session.assessor
        skipped = desk.skipped(name)
        return self._page(
            "nothing.html",
            assessor=name,
            progress=desk.progress(name),
            skipped=skipped[:20],
            n_skipped=len(skipped),
            before=desk.last(name),
            message=self._message(session),
        )

    async def again(self, request: Request) -> Response:
        session, _ = self._session(request)
        if session is None:
            return self._unknown(request)
        number = request.path_params["pair"]
        shown = await run_in_threadpool(self._site.desk.again, session.assessor, number)
        if shown is None:
            raise HTTPException(404)
        return await run_in_threadpool(self._pair, session, shown, again=True)

    def _pair(self, session: Session, shown: Shown, *, again: bool) -> Response:
        site = self._site
        document = site.document(shown.document) if site.document else None
        text = "" if document is None else document.text
        nonce = secrets.token_urlsafe(12)
        return self._page(
            "judge.html",
            assessor=session.assessor,
            several=len(site.access.assessors) > 1,
            progress=site.desk.progress(session.assessor),
            shown=shown,
            again=again,
            query=site.query(shown.query) if site.query else None,
            document=document,
            offers=site.predicted is not None,
            predicted=site.predicted(shown.query, shown.document) if site.predicted else None,
            texts=site.document is not None,
            text=text[:SHOWN],
            length=len(text),
            more=len(text) > SHOWN,
            start=SHOWN,
            grades=site.grades,
            label=self._labels.get(shown.grade) if shown.grade is not None else None,
            message=self._message(session),
            guidelines=self._guidelines,
            note_length=NOTE_LENGTH,
            nonce=nonce,
            seal=site.access.seal(session, shown.pair, nonce, shown.revision),
        )

    def _message(self, session: Session) -> tuple[str, str] | None:
        """How the form before fared: its kind, and a sentence."""
        outcome = self._site.told(session)
        if outcome is None:
            return None
        label = "" if outcome.grade is None else self._named(outcome.grade)
        sentence = {
            "saved": f"Saved: {label}.",
            "skipped": "Skipped. You can come back to it at the end.",
            "noted": "Note saved.",
            "again": f"That was saved already: {label or 'skipped'}.",
            "other": f"Not changed: your earlier answer is kept, {label or 'skipped'}.",
            "many": "Not saved: too many notes in a minute. Wait a little, then save it again.",
        }[outcome.kind]
        return ("alert" if outcome.kind in ("other", "many") else "saved", sentence)

    def _named(self, grade: float) -> str:
        label = self._labels.get(grade)
        return f"{grade:g}, {label}" if label else f"{grade:g}"

    async def text(self, request: Request) -> Response:
        session, _ = self._session(request)
        if session is None:
            return self._unknown(request)
        number, begin = request.path_params["pair"], request.query_params.get("from", "0")
        shown = await run_in_threadpool(self._site.desk.again, session.assessor, number)
        if shown is None or self._site.document is None:
            raise HTTPException(404)
        if not (begin.isascii() and begin.isdigit() and len(begin) <= 12):
            raise HTTPException(404)
        document = await run_in_threadpool(self._site.document, shown.document)
        start = int(begin)
        if document is None or start >= len(document.text):
            raise HTTPException(404)
        return await run_in_threadpool(
            self._page,
            "text.html",
            title=document.title,
            shown=shown,
            text=document.text[start : start + PART],
            start=start,
            stop=min(start + PART, len(document.text)),
            length=len(document.text),
            part=PART,
        )

    async def answer(self, request: Request) -> Response:
        session, begins = self._session(request)
        if session is None:
            return self._unknown(request)
        form = self._form(session, await _body(request))
        if form is None or begins:  # a session that begins here was shown nothing
            return self._page(
                "refused.html",
                403,
                heading="Not saved: this page is out of date",
                text="It was made for someone else, or before the links of the study changed. "
                "Nothing was stored. Load the page anew and give your answer there.",
            )
        outcome = await run_in_threadpool(
            self._site.desk.answer, session.assessor, form, self._grades
        )
        self._site.tell(session, outcome)
        if outcome.kind in ("other", "many"):
            status = 409 if outcome.kind == "other" else 429
            _, sentence = self._message(session) or ("", "")
            return self._page(
                "refused.html",
                status,
                heading=sentence,
                text="This can happen with two tabs, or after going back. To change your answer, "
                "open the pair again.",
                pair=form.pair,
            )
        to = f"/pair/{form.pair}" if form.act == "note" else "/"
        return RedirectResponse(to, 303)

    def _form(self, session: Session, body: bytes) -> Form | None:
        """What a form says, None if this session was not shown it."""
        try:
            fields = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=10))
            pair, revision = int(fields["pair"]), int(fields["revision"])
            nonce, seal, act = fields["nonce"], fields["seal"], fields["act"]
        except (ValueError, KeyError):
            raise HTTPException(400) from None
        if not self._site.access.is_sealed(session, pair, nonce, revision, seal):
            return None
        if act not in ("skip", "note") and act not in self._grades:
            raise HTTPException(400)
        note = fields.get("note")
        if note is not None:
            note = note.replace("\r\n", "\n").strip()
            if len(note) > NOTE_LENGTH:
                raise HTTPException(413)
        return Form(pair, nonce, revision, act, note)

    async def live(self, request: Request) -> Response:
        session, begins = self._session(request, live=True)
        if session is None:
            return self._unknown(request)
        response = await run_in_threadpool(self._live)
        return self._with_cookie(response, session) if begins else response

    def _live(self) -> Response:
        desk = self._site.desk
        answer: LiveEstimate = self._site.live.look(desk.basis())
        found = answer.found
        return self._page(
            "live.html",
            rounds=desk.rounds(),
            made=desk.queues.made(),
            notes=desk.notes(),
            fault=desk.fault,
            stuck=desk.queues.stuck(),
            answer=answer,
            age=int(time.time() - answer.at),
            refresh=3 if answer.busy else 20,
            systems=None if found is None else _scaled(found["systems"], "system"),
            contrasts=None if found is None else _scaled(found["contrasts"], "contrast"),
            goal=None if found is None else found["goal"],
        )

    async def refuse(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        heading = {
            400: "Not saved: the form was not whole",
            404: "There is no such page",
            405: "That cannot be done here",
            413: "Not saved: that is too long",
        }.get(status, "This did not work")
        return self._page("refused.html", status, heading=heading, text="Nothing was stored.")

    async def failed(self, request: Request, error: Exception) -> Response:
        hint = error.hint if isinstance(error, StudyError) else ""
        return self._page(
            "refused.html",
            500,
            heading="Not saved",
            text=f"The study could not be written or read. {hint}".strip() + " Tell the person "
            "who runs the study; then go back and give your answer again.",
        )


async def _body(request: Request) -> bytes:
    """The body of a request, no longer than a form may be."""
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or int(declared) > _BODY:
        raise HTTPException(413)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(400)
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _BODY:
            raise HTTPException(413)
    return body


def _scaled(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Rows with where their intervals lie on a common scale from 0 to 100, best first."""
    ends = [row[key] for row in rows for key in ("low", "high") if row[key] is not None]
    least, most = min([*ends, 0.0]), max([*ends, 0.0])
    span = (most - least) or 1.0
    widths = [row["std_error"] for row in rows if row["std_error"]]
    digits = 4 if not widths else max(2, min(6, 1 - _power(min(widths))))

    def at(value: float) -> float:
        return round(2 + 96 * (value - least) / span, 2)

    drawn = [
        {
            "name": row[name],
            **{key: row[key] for key in ("estimate", "low", "high")},
            "bar": None
            if row["estimate"] is None
            else {"low": at(row["low"]), "high": at(row["high"]), "at": at(row["estimate"])},
            "apart": row["estimate"] is not None and (row["low"] > 0 or row["high"] < 0),
        }
        for row in rows
    ]
    drawn.sort(key=lambda row: -float("inf") if row["estimate"] is None else -row["estimate"])
    return {"rows": drawn, "zero": at(0.0), "digits": digits}


def _power(value: float) -> int:
    return int(f"{value:e}".partition("e")[2])
