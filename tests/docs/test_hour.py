"""Outputs of pages are made again by the commands that stand there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import hour

SECTION = """## Does it run?

```python
# one.py
from pathlib import Path

Path("runs/one").mkdir(parents=True)
Path("runs/one/runs.csv").write_text("seed\\n0\\n")
print("written")
```

```bash
python one.py
ls experiments/run.py
```
"""


def test_a_section_is_run_in_a_folder_and_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hour, "SECTIONS", [(None, SECTION)])
    monkeypatch.setattr(hour, "OUTPUTS", tmp_path)
    hour.main(tmp_path / "folder")
    assert (tmp_path / "does-it-run.txt").read_text() == "written\nexperiments/run.py\n"
    assert (tmp_path / "one-runs.csv").read_text() == "seed\n0\n"
    assert capsys.readouterr().out.startswith("does-it-run ")
