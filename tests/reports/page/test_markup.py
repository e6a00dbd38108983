"""Markup from values: what is not markup is escaped, on every way in."""

from __future__ import annotations

import json

from memaudit.reports.page.markup import Markup, data_script, joined, tag, text
from memaudit.reports.page.table import Table


def test_text_attributes_and_children_are_escaped():
    made = tag("p", "<b>", tag("i", "&"), title='"><script>', hidden=True, id=None)
    assert made == '<p title="&quot;&gt;&lt;script&gt;" hidden>&lt;b&gt;<i>&amp;</i></p>\n'


def test_control_and_bidirectional_characters_are_gone():
    assert text("a\x1b[31m\u202eb\nc") == "a[31mb c"


def test_a_space_beside_an_element_stays():
    assert joined("for ", tag("b", "3"), " steps") == "for <b>3</b> steps"
    assert joined(" ", None, ["a", Markup("<br>")]) == " a<br>"


def test_data_cannot_leave_its_script():
    value = "</script><!--\u2028&"
    made = data_script({"name": value})
    inside = made.partition(">")[2].rpartition("</script>")[0]
    assert "<" not in inside
    assert "\u2028" not in inside
    assert json.loads(inside) == {"name": value}


def test_columns_without_content_are_left_out_and_numbers_stand_right():
    table = Table("c", ("name", "number", "nothing", "words"), [("a", "1.5", "-", "x")])
    assert table.markup() == (
        '<div class="scroll" tabindex="0" role="region" aria-label="c"><table>'
        "<caption><span>c</span></caption>\n"
        '<thead><tr><th scope="col" class="s">name</th><th scope="col" class="n">number</th>'
        '<th scope="col" class="s">words</th></tr>\n</thead>\n'
        '<tbody><tr><th scope="row" class="s">a</th><td class="n">1.5</td>'
        '<td class="s">x</td></tr>\n</tbody>\n</table>\n</div>\n'
    )
