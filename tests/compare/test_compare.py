"""Two reports side by side: numbers, rows, curves and findings, whatever their capability."""

from memaudit.compare import compare
from memaudit.modes import spectrum
from memaudit.report import Finding
from tests.handmade import curve, identity, report


def made(value: float, **changes):
    item = spectrum(
        layer="l0", cell="c", parameterization="exp", at="rest", eigenvalues=[value, 0.5]
    )
    return report(spectrum=(item,), **changes)


def titles(difference):
    return {section.title: section for section in difference.document().sections}


def test_the_first_sentence_says_whether_it_is_better_or_worse():
    both = compare(made(0.9), made(0.99))
    assert both.headline == "margin 0.1 -> 0.01 (-90 %); findings: none"
    verdicts = {row[0]: row[4] for row in titles(both)["Numbers"].tables[0].rows}
    assert verdicts["margin"] == "worse"
    assert verdicts["time_scale"] == "other"


def test_a_report_does_not_differ_from_itself():
    both = compare(made(0.9), made(0.9))
    assert both.headline.startswith("no number that tells better from worse has changed")
    assert "Numbers" not in titles(both)


def test_rows_are_paired_by_key_and_curves_by_name():
    section = titles(compare(made(0.9), made(0.99)))["Spectrum"]
    rows = section.tables[0].rows
    assert ("l0", "margin", "1.00e-01", "1.00e-02") in rows
    names = [series.name for series in section.figures[0].series]
    assert names == ["l0 (before)", "l0 (after)"]


def test_findings_are_new_gone_or_stayed():
    first = Finding("MA201", "near-boundary", "warning", "m", "a", "l0")
    other = Finding("MA203", "direct-parameterization", "note", "m", "a", "l0")
    both = compare(made(0.9, findings=(first,)), made(0.9, findings=(other,)))
    assert both.headline.endswith("findings: 1 new, 1 gone")
    changes = {row[0]: row[2] for row in titles(both)["Findings"].tables[0].rows}
    assert changes == {"MA203 direct-parameterization": "new", "MA201 near-boundary": "gone"}


def test_other_models_settings_and_sections_are_named():
    plain = report(subject=identity(description="another", parameters=7, sha256="b"))
    full = made(0.9, subject=identity(sha256="a"), settings={"horizon": 64, "seed": 0})
    shown = titles(compare(full, plain))
    text = " ".join(shown["Changes"].text)
    assert "Two different models are compared" in text
    assert "horizon 64 -> 512" in text
    assert any("Only BEFORE measured spectrum" in line for line in shown["Changes"].text)


def test_numbers_on_other_inputs_are_neither_better_nor_worse():
    both = compare(
        report(curve("driven", fed="the sample text, 48 passages"), curve()),
        report(curve("driven", fed="a.npy, 48 sequences", horizon=70), curve(horizon=70)),
    )
    shown = titles(both)
    verdicts = {row[0]: row[4] for row in shown["Numbers"].tables[0].rows}
    assert verdicts["horizon"] == verdicts["driven/horizon"] == "unknown"
    assert verdicts["heaviside/horizon"] == "worse"
    assert "horizon 139 -> 70 (not comparable)" in both.headline
    told = "measured on other inputs: the sample text -> a.npy."
    assert any(line.endswith(told) for line in shown["Changes"].text)
