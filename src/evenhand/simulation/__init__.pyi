from .adaptive import study_that_learns as study_that_learns
from .collections import make_collection as make_collection
from .replicates import Replications as Replications
from .replicates import replicate_design as replicate_design
from .simulations import Simulation as Simulation
from .simulations import simulate as simulate
