"""Every built-in by kind and name, as strings: reading this page imports nothing."""

from __future__ import annotations

from typing import Final

#: kind → name → "module:Class". Entry points of the group `memaudit.<kind>` join at run time.
BUILT_IN: Final[dict[str, dict[str, str]]] = {
    "adapters": {},  # the zoos register by entry points, like everybody else's
    "queries": {
        "heaviside": "memaudit.memory.queries:Heaviside",
        "impulse": "memaudit.memory.queries:Impulse",
        "reversed": "memaudit.memory.queries:ReversedInput",
        "repeat": "memaudit.memory.queries:Repeat",
        "context": "memaudit.memory.queries:Context",
    },
    "probes": {
        "assumptions": "memaudit.memory.probe:Assumptions",
        "memory": "memaudit.memory.probe:Memory",
        "spectrum": "memaudit.spectrum.probe:Spectrum",
        "closed-form": "memaudit.closed_form.probe:ClosedForm",
        "stability": "memaudit.stability.probe:Stability",
        "precision": "memaudit.precision.probe:Precision",
        "gradient": "memaudit.gradient.probe:Gradient",
        "recall": "memaudit.recall.probe:Recall",
    },
    "reparams": {
        "direct": "memaudit.reparams:Direct",
        "relu": "memaudit.reparams:Relu",
        "clip": "memaudit.reparams:Clip",
        "exp": "memaudit.reparams:Exp",
        "softplus": "memaudit.reparams:Softplus",
        "inverse": "memaudit.reparams:Inverse",
        "tanh": "memaudit.reparams:Tanh",
        "best": "memaudit.reparams:Best",
        "heavytail": "memaudit.reparams:Heavytail",
    },
    "targets": {
        "exp": "memaudit.targets:Exp",
        "poly": "memaudit.targets:Poly",
        "airy": "memaudit.targets:Airy",
        "shift": "memaudit.targets:Shift",
        "volterra": "memaudit.targets:Volterra",
        "lotka-volterra": "memaudit.targets:LotkaVolterra",
    },
    "findings": {
        "MA208": "memaudit.families.result:crossings_shift_left",
        "MA209": "memaudit.families.result:weight_growth",
    },
    "reports": {
        "terminal": "memaudit.writers.terminal:Terminal",
        "json": "memaudit.writers.json_file:JsonFile",
        "markdown": "memaudit.writers.markdown:Markdown",
        "github": "memaudit.writers.github:Github",
        "junit": "memaudit.writers.junit:Junit",
        "lm-eval": "memaudit.writers.lm_eval:LmEval",
        "html": "memaudit.writers.html:Html",
        "figure": "memaudit.writers.picture:Picture",
    },
}

#: kind → the abstract classes of which its plugins descend from one.
ABSTRACT: Final[dict[str, tuple[str, ...]]] = {
    "adapters": ("memaudit.contracts.AbstractAdapter",),
    "queries": ("memaudit.contracts.AbstractQuery", "memaudit.contracts.AbstractTokenQuery"),
    "probes": ("memaudit.contracts.AbstractProbe",),
    "reparams": ("memaudit.reparam.AbstractReparam",),
    "targets": ("memaudit.target.AbstractTarget",),
    "findings": ("memaudit.rules.Rule",),
    "reports": ("memaudit.contracts.AbstractReportFormat",),
}
#: Rises when a plugin that was written for the old contracts would no longer work.
CONTRACT: Final = 2

#: What `scan` measures unless it is told otherwise.
DEFAULT_QUERIES: Final = ("heaviside", "impulse", "reversed")
DEFAULT_PROBES: Final = ("assumptions", "spectrum", "closed-form")

#: Trained models in the package, and what they were trained on.
DEMOS: Final[dict[str, str]] = {
    "lstm": "LSTM, 1 layer of 32: moving average with kernel 0.95^t",
    "gru": "GRU, 1 layer of 32: repeat the input of 10 steps ago",
    "rnn": "tanh RNN, 1 layer of 32: moving average with kernel 0.9^t",
    "s4d": "S4D, 1 block of 16: moving average with kernel 0.95^t",
    "lru": "LRU, 1 block of 24: repeat the symbol of 8 steps ago",
    "mamba": "Mamba, 2 layers of 48: language model of letters",
    "bert": "BERT, 2 layers of 48: are more words of a review good than bad",
}
