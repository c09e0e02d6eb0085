"""A study told on one page: facts, a sentence, pictures, and the page that holds them.

- `facts`: everything a report tells, as plain values
- `gathering`: asks a study for them (`gather`)
- `calibrations`: a learned prior held against what was judged
- `conclusions`: the answer in one sentence
- `methods`: a paragraph that says how it was found, ready to paste
- `sheets`: the tables
- `plots` and `drawings`: pictures of the facts, and how they get onto a page or into files
- `pages`: the page itself, one file that needs no other (`write`)
"""

__all__ = []
