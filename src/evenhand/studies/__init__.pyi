from .judgments import JudgmentStore as JudgmentStore
from .snapshots import Snapshot as Snapshot
