"""Every built-in by kind and name, as strings: reading this page imports nothing."""

from __future__ import annotations

from typing import Final

#: kind → name → "module:Class". Entry points of the group `memaudit.<kind>` join at run time.
BUILT_IN: Final[dict[str, dict[str, str]]] = {
    "adapters": {},  # the zoos register by entry points, like everybody else's
    "queries": {
        "heaviside": "memaudit.queries.heaviside:Heaviside",
        "impulse": "memaudit.queries.impulse:Impulse",
        "reversed": "memaudit.queries.reversed_input:ReversedInput",
        "repeat": "memaudit.queries.repeat:Repeat",
        "context": "memaudit.queries.context:Context",
    },
    "probes": {
        "assumptions": "memaudit.memory.probe:Assumptions",
        "memory": "memaudit.memory.probe:Memory",
        "spectrum": "memaudit.spectrum.probe:Spectrum",
        "closed-form": "memaudit.probes.closed_form:ClosedForm",
        "stability": "memaudit.probes.stability:Stability",
        "precision": "memaudit.probes.precision:Precision",
        "gradient": "memaudit.probes.gradient:Gradient",
        "recall": "memaudit.probes.recall:Recall",
    },
    "reparams": {
        "direct": "memaudit.reparams.direct:Direct",
        "relu": "memaudit.reparams.relu:Relu",
        "clip": "memaudit.reparams.clip:Clip",
        "exp": "memaudit.reparams.exp:Exp",
        "softplus": "memaudit.reparams.softplus:Softplus",
        "inverse": "memaudit.reparams.inverse:Inverse",
        "tanh": "memaudit.reparams.tanh:Tanh",
        "best": "memaudit.reparams.best:Best",
        "heavytail": "memaudit.reparams.heavytail:Heavytail",
    },
    "targets": {
        "exp": "memaudit.targets.exp:Exp",
        "poly": "memaudit.targets.poly:Poly",
        "airy": "memaudit.targets.airy:Airy",
        "shift": "memaudit.targets.shift:Shift",
        "volterra": "memaudit.targets.volterra:Volterra",
        "lotka-volterra": "memaudit.targets.lotka_volterra:LotkaVolterra",
    },
    "findings": {
        "MA005": "memaudit.findings.window_cut:WindowCut",
        "MA006": "memaudit.findings.not_asked:NotAsked",
        "MA101": "memaudit.findings.memoryless:Memoryless",
        "MA102": "memaudit.findings.growing_memory:GrowingMemory",
        "MA103": "memaudit.findings.persistent_memory:PersistentMemory",
        "MA104": "memaudit.findings.undetermined_decay:UndeterminedDecay",
        "MA105": "memaudit.findings.supremum_at_edge:SupremumAtEdge",
        "MA106": "memaudit.findings.beyond_window:BeyondWindow",
        "MA107": "memaudit.findings.queries_disagree:QueriesDisagree",
        "MA108": "memaudit.findings.input_ignored:InputIgnored",
        "MA109": "memaudit.findings.diverged:Diverged",
        "MA110": "memaudit.findings.unsettled_prefix:UnsettledPrefix",
        "MA111": "memaudit.findings.power_law_in_window:PowerLawInWindow",
        "MA112": "memaudit.findings.sensitive_to_rounding:SensitiveToRounding",
        "MA113": "memaudit.findings.short_of_context:ShortOfContext",
        "MA114": "memaudit.findings.shut_by_silence:ShutBySilence",
        "MA115": "memaudit.findings.blind_to_constants:BlindToConstants",
        "MA116": "memaudit.findings.closed_form_disagrees:ClosedFormDisagrees",
        "MA205": "memaudit.findings.format_unsafe:FormatUnsafe",
        "MA206": "memaudit.findings.gradient_range:GradientRange",
        "MA208": "memaudit.findings.crossings_shift_left:CrossingsShiftLeft",
        "MA209": "memaudit.findings.weight_growth:WeightGrowth",
        "MA301": "memaudit.findings.not_causal:NotCausal",
        "MA302": "memaudit.findings.not_time_homogeneous:NotTimeHomogeneous",
        "MA303": "memaudit.findings.not_deterministic:NotDeterministic",
        "MA304": "memaudit.findings.rows_depend:RowsDepend",
        "MA305": "memaudit.findings.outside_theory:OutsideTheory",
    },
    "reports": {
        "terminal": "memaudit.writers.terminal:Terminal",
        "json": "memaudit.writers.json_file:JsonFile",
        "markdown": "memaudit.writers.markdown:Markdown",
        "github": "memaudit.writers.github:Github",
        "junit": "memaudit.writers.junit:Junit",
        "lm-eval": "memaudit.writers.lm_eval:LmEval",
        "html": "memaudit.writers.html:Html",
    },
}

#: kind → the abstract classes of which its plugins descend from one.
ABSTRACT: Final[dict[str, tuple[str, ...]]] = {
    "adapters": ("memaudit.contracts.AbstractAdapter",),
    "queries": ("memaudit.contracts.AbstractQuery", "memaudit.token_query.AbstractTokenQuery"),
    "probes": ("memaudit.contracts.AbstractProbe",),
    "reparams": ("memaudit.reparam.AbstractReparam",),
    "targets": ("memaudit.target.AbstractTarget",),
    "findings": ("memaudit.rules.Rule", "memaudit.rule.AbstractRule"),
    "reports": ("memaudit.contracts.AbstractReportFormat",),
}
#: Rises when a plugin that was written for the old contracts would no longer work.
CONTRACT: Final = 1

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
