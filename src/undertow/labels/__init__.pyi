from .choice import Choice as Choice
from .choice import choose_checkpoint as choose_checkpoint
from .findings import LabelErrors as LabelErrors
from .search import label_errors as label_errors
from .settings import LabelConfig as LabelConfig
