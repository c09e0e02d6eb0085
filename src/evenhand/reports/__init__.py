"""A study on one page, and plots of results.

- `plots`: one plotting function for each kind of result
- `facts`: everything a report shows, as plain values
- `gather`: asks a study for them
- `calibration`: a learned prior held against what was judged
- `summary`: the answer in one sentence
- `methods`: a paragraph on how it was found, ready to paste
- `report_tables`: the tables
- `report_figures` and `drawings`: pictures of the facts, and how they get onto a page or into files
- `html`: the page itself, one file that needs no other
"""

__all__ = []
