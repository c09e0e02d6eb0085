from .betting import sequence as sequence
from .intervals import INTERVALS as INTERVALS
from .intervals import Interval as Interval
from .moments import Evidence as Evidence
from .moments import Moments as Moments
from .moments import Terms as Terms
from .simultaneous import Comparisons as Comparisons
