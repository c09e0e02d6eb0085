"""A study told on one page: facts, a sentence, pictures, and the page that holds them.

- `facts`: everything a report tells, gathered from a study as plain values (`gather`)
- `calibrations`: a learned prior held against what was judged
- `conclusions`: the answer in one sentence
- `methods`: a paragraph that says how it was found, ready to paste
- `plots`: pictures of the facts
- `pages`: the page itself, one file that needs no other (`write`)
"""

__all__ = []
