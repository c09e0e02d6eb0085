from .excerpts import SAMPLERS as SAMPLERS
from .excerpts import Excerpt as Excerpt
from .excerpts import excerpt as excerpt
from .ranked_entries import RankedEntries as RankedEntries
from .ranked_entries import entries as entries
from .workspace import Workspace as Workspace
