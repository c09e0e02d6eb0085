"""A judging page for assessors, and a page of estimates for the researcher.

`serve` is what ``evenhand serve`` calls. Under it, in the order in which an answer passes::

    access     who may see what: links, cookies, sealed forms
    pages      what is shown and taken over HTTP, and what is refused
    queues     which pair each assessor sees next
    answers    answers, each stored before it is acknowledged
    notes      skips and notes, kept beside the judgments
    live       estimates, made in a process of their own
    server     all of it on a port

Nothing here imports JAX: the page is there in a second. What is shown is a query and a document;
who returned it, at which rank, and what a model thinks of it, is not.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
