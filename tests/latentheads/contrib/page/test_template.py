"""What a page is filled with."""

from __future__ import annotations

import os

from latentheads.contrib.page.template import fill_page


def test_a_folder_whose_name_is_no_text_has_a_page() -> None:
    name = os.fsdecode(b"caf\xe9")
    page = fill_page({"runs": [{"name": name, "path": f"/{name}"}]})
    assert "<title>latentheads: caf?</title>" in page
    assert '"path":"/caf?"' in page


def test_scripts_have_no_lookbehind_which_older_browsers_do_not_parse() -> None:
    page = fill_page({"runs": [{"name": "run", "path": "/run"}]})
    assert "(?<" not in page
