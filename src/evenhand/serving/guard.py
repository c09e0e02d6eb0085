"""A filter before the pages: refuses what none of them sends, and guards every answer.

Other sites may lead here, and load or send nothing. Every answer forbids the browser all but the
page's own style and script, so that a document's text stays text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Guard"]

_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """A filter before an application.

    Parameters
    ----------
    app
        What is guarded.
    hosts
        The names by which the server may be called; none for any.
    proxy
        Host, and port where it is named, by which a proxy is called.
    """

    def __init__(self, app: ASGIApp, *, hosts: Sequence[str] = (), proxy: str = "") -> None:
        self._app, self._hosts, self._proxy = app, hosts, proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on and add the headers to its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                named = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (n.encode(), v.encode())
                        for n, v in _HEADERS.items()
                        if n.encode() not in named
                    ),
                ]
            await send(message)

        refusal = self._refusal(Request(scope))
        if refusal:
            status, reason = refusal
            await Response(f"{reason}\n", status, media_type="text/plain")(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)

    def _refusal(self, request: Request) -> tuple[int, str] | None:
        headers = request.headers
        host = headers.get("host", "").lower()
        if self._hosts and re.sub(r":\d*$", "", host) not in self._hosts:
            return 421, "this server is not known by that name"
        site = headers.get("sec-fetch-site", "none")
        if request.method in ("GET", "HEAD"):
            foreign = site not in ("same-origin", "none")
            loads = headers.get("sec-fetch-mode", "navigate") != "navigate"
            framed = headers.get("sec-fetch-dest", "document") in (
                "iframe",
                "frame",
                "embed",
                "object",
            )
            if foreign and (loads or framed):
                return 403, "other sites may not load this"
            return None
        if request.method != "POST":
            return 405, "only GET and POST"
        # A page without a referrer sends the origin "null"; its seal then says whose it is.
        origin = headers.get("origin", "null")
        if origin != "null" and origin.partition("://")[2].lower() not in (
            host,
            self._proxy,
        ):
            return 403, "other sites may not send this"
        if site not in ("same-origin", "none"):
            return 403, "other sites may not send this"
        return None
