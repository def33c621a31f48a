from .choice import Choice as Choice
from .choice import choose_checkpoint as choose_checkpoint
from .findings import LabelErrors as LabelErrors
from .search import LabelConfig as LabelConfig
from .search import label_errors as label_errors
