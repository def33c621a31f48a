from .figures import FIGURES as FIGURES
from .figures import draw as draw
from .page import page_text as page_text
from .page import write_report as write_report
from .saved import Saved as Saved
from .saved import read_saved as read_saved
from .server import serve as serve
