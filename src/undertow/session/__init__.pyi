from .gauge import Gauge as Gauge
from .progress import NoProgress as NoProgress
from .progress import Progress as Progress
from .session import Session as Session
from .session import session_of as session_of
from .settings import SessionConfig as SessionConfig
from .sight import Sight as Sight
from .splits import Split as Split
