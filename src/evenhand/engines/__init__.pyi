from .excerpts import SAMPLERS as SAMPLERS
from .excerpts import Excerpt as Excerpt
from .excerpts import excerpt as excerpt
from .ranked_entries import Entries as Entries
from .ranked_entries import entries as entries
from .workspace import Workspace as Workspace
