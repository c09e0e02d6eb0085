from .betting import sequence as sequence
from .intervals import INTERVALS as INTERVALS
from .intervals import Interval as Interval
from .moments import Evidence as Evidence
from .moments import TermMoments as TermMoments
from .moments import Terms as Terms
from .simultaneous import Comparisons as Comparisons
