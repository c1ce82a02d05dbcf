"""PyTorch's ATen in expressions of ours: what `torch.export` gives, operator by operator, as a model.

While not all that `from_torch` takes goes this way, `LSTM_LOWER_ATEN=1` in the environment chooses it, for all of a
process.
"""

import os

CHOSEN = os.environ.get("LSTM_LOWER_ATEN") == "1"
