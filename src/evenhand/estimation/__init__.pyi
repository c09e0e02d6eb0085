from .cross_fitting import control_variates as control_variates
from .cross_fitting import cross_fit as cross_fit
from .estimates import Estimate as Estimate
from .importance import estimate as estimate
from .importance import judge as judge
from .importance import terms as terms
from .self_normalised import estimate_normalised as estimate_normalised
