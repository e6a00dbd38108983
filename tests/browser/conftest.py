"""A real browser, headless, and pages for it; skipped with the way to install it."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

INSTALL = "as root: apt-get install chromium; then pip install playwright"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclass
class Visit:
    """An open page, and everything that went wrong or was asked for on the way."""

    page: Any
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def respond_with_hook(self) -> None:
        """Write down what the page says."""
        self.page.on("console", lambda m: self._heard(m.type, m.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", self._dismiss)

    def chart(self, place: int, script: str) -> Any:
        """What ECharts says of the figure in that place."""
        return self.page.evaluate(
            f"place => {{ const c = memaudit.charts[place].chart; {script} }}", place
        )

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.errors.append(f"{kind}: {text}")

    def _dismiss(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()


@pytest.fixture(scope="session")
def browser():
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no Chromium here; {INSTALL}")
    sync_api = pytest.importorskip("playwright.sync_api", reason=f"no playwright here; {INSTALL}")
    with sync_api.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path)
        yield started
        started.close()


@pytest.fixture
def visit(browser, tmp_path):
    """Open a page that was written to disk, at a width and in a colour scheme."""
    contexts = []

    def go(text: str, *, width: int = 1280, scheme: str = "light") -> Visit:
        file = tmp_path / "page.html"
        file.write_text(text, encoding="utf-8")
        size = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, color_scheme=scheme)
        contexts.append(context)
        visited = Visit(context.new_page())
        visited.respond_with_hook()
        visited.page.goto(file.as_uri())
        visited.page.wait_for_selector("html[data-ready=yes]", state="attached")
        return visited

    yield go
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory) -> Path:
    """Where pictures are kept to be looked at."""
    named = os.environ.get("MEMAUDIT_ARTEFACTS")
    folder = Path(named) if named else tmp_path_factory.mktemp("artefacts")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
