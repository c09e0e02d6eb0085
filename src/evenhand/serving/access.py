"""Who may see what: links, cookies and sealed forms, all made from one secret of the study.

The secret is drawn once and lies in the study's folder, readable by its owner alone. From it
follow, by HMAC-SHA256,

- the *token* of each role, an assessor or the live page: the same after every restart, so that
  links stay good; without the secret there is no telling one;
- the *session* that a link turns into: token and a number of the browser's own, in a cookie that
  scripts cannot read and that other sites' pages cannot send;
- the *seal* of each form: over the session, the pair and a nonce. What was not shown to this
  session by this study is refused.

Removing the file makes all links void. Comparisons take the same time whatever differs.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from evenhand.errors import StudyError

__all__ = ["LIVE", "Access", "Session", "read_secret"]

#: The role of the page for researchers; those of assessors are their names, prefixed.
LIVE = "live"


class Session(NamedTuple):
    """A browser in a role: the assessor's name, or "" for the live page; and the cookie's value."""

    assessor: str
    cookie: str


def read_secret(path: Path) -> bytes:
    """The secret in a file, which is made with a new one where there is none.

    Raises
    ------
    StudyError
        If the file cannot be read or made, or holds no secret.
    """
    try:
        if not path.exists():
            work = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
            handle = os.open(work, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(work, path)
            work.unlink()
        text = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise StudyError(
            f"cannot keep the secret of the judging page in {path}: {error}",
            hint="make the study's folder writable",
        ) from error
    if len(text) < 32:
        raise StudyError(
            f"{path} holds no secret", hint="remove it: a new one is made, and links change"
        )
    return text.encode()


class Access:
    """Tokens, sessions and seals.

    Parameters
    ----------
    secret
        Of `read_secret`.
    assessors
        Who may judge.
    open
        Whether everybody who reaches the server is the one assessor, and may see the live page.
    """

    def __init__(self, secret: bytes, assessors: Sequence[str], *, open: bool) -> None:
        self._secret, self.assessors, self.open = secret, tuple(assessors), open
        # Browsers keep one cookie jar for all ports of a host: each study has names of its own.
        own = self._sign("cookie")[:8]
        self._names = {False: f"evenhand-{own}", True: f"evenhand-{own}-live"}

    def _sign(self, *parts: str) -> str:
        digest = hmac.new(self._secret, repr(parts).encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def cookie_name(self, live: bool) -> str:
        """Under which name a session's cookie goes."""
        return self._names[live]

    def token(self, assessor: str) -> str:
        """The token of an assessor; of the live page for ""."""
        return self._sign("role", f"assessor:{assessor}" if assessor else LIVE)

    def whose(self, token: str) -> str | None:
        """The assessor whose token this is, "" for the live page's, None for nobody's."""
        found = None
        given = token.encode("utf-8", "replace")
        for name in ("", *self.assessors):  # all of them, so that time reveals nothing
            if hmac.compare_digest(self.token(name).encode(), given):
                found = name
        return found

    def begin(self, assessor: str) -> Session:
        """A new session; of the live page for ""."""
        return Session(assessor, f"{self.token(assessor)}.{secrets.token_urlsafe(12)}")

    def resume(self, cookie: str | None, *, live: bool) -> Session | None:
        """The session of a cookie, or None."""
        token, dot, number = (cookie or "").partition(".")
        name = self.whose(token) if dot and 0 < len(number) <= 64 else None
        if name is None or cookie is None or (name == "") is not live:
            return None
        return Session(name, cookie)

    def seal(self, session: Session, pair: int, nonce: str, revision: int) -> str:
        """What proves that a form was shown to this session."""
        return self._sign("form", session.cookie, str(pair), nonce, str(revision))

    def is_sealed(self, session: Session, pair: int, nonce: str, revision: int, seal: str) -> bool:
        """Whether a seal is that of a form."""
        expected = self.seal(session, pair, nonce, revision)
        return hmac.compare_digest(expected.encode(), seal.encode("utf-8", "replace"))
