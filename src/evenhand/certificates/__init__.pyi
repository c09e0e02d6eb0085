from .cases import Certificate as Certificate
from .certification import Certificates as Certificates
from .certification import certify as certify
from .certification import certify_files as certify_files
from .certification import certify_runs as certify_runs
