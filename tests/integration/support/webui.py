"""Dagster's user interface as a process, and a browser that looks at it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from selenium import webdriver
from selenium.common import exceptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tableferry.resources.child_processes import ending_with_us
from tableferry_local.process import free_port
from tests.integration.support.beside import until

ROOT = Path(__file__).resolve().parents[3]
WIDTH, HEIGHT = 1400, 900
EFFECT_SECONDS = 15.0
"""How long the effect of a click may take, before it is taken for lost and clicked again."""
Found = dict[str, Any]


def graphql(url: str, query: str, **variables: Any) -> Found:
    """The `data` of the answer of Dagster's webserver at this URL."""
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(f"{url}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: Found = json.load(answer)
    assert "errors" not in found, found["errors"]
    return dict(found["data"])


@contextmanager
def webserver(
    folder: Path, module: str, python: Path, environment: Mapping[str, str], log: Path
) -> Iterator[str]:
    """Dagster's webserver, on a project whose own environment has another Python; its URL.

    Args:
        folder: the folder of the project's packages.
        module: the module of its definitions.
        python: the interpreter of its environment.
        environment: the variables of both.
        log: a file for what it says.
    """
    place = {"module_name": module, "working_directory": str(folder)}
    workspace = log.with_suffix(".yaml")
    workspace.write_text(
        json.dumps({"load_from": [{"python_module": place | {"executable_path": str(python)}}]})
    )
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    program = [sys.executable, "-m", "dagster_webserver", "-w", str(workspace), "-p", str(port)]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*ending_with_us("TERM"), *program],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        until("Dagster's webserver", lambda: _answers(url), log=log)
        yield url
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/server_info", timeout=5).close()
    except (urllib.error.URLError, OSError):
        return False
    return True


class UserInterface:
    """`make dev`, on the servers, transfers and Dagster home that the environment names."""

    def __init__(self, log: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        # -o: the packages that this very test runs with are not installed anew
        command = ["make", "-o", ".venv/.installed", f"BIN={Path(sys.executable).parent}"]
        command += [f"DAGSTER_PORT={self.port}", "dev"]
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [*ending_with_us("TERM"), *command],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # a shell's background job ignores SIGINT, and would hand that down
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
            )
        until("Dagster's user interface", self._answers)

    def _answers(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()
        return _answers(self.url)

    def graphql(self, query: str, **variables: Any) -> Found:
        """The `data` of an answer."""
        return graphql(self.url, query, **variables)

    def processes(self) -> list[psutil.Process]:
        """`make` and everything under it."""
        try:
            top = psutil.Process(self._process.pid)
        except psutil.NoSuchProcess:
            return []
        return [top, *top.children(recursive=True)]

    def running(self, program: str) -> bool:
        """Whether a process that Ctrl-C would reach has this in its command line."""
        groups = {_group(one) for one in self.processes()} - {None}
        return any(
            program in " ".join(one.info["cmdline"] or ()) and _group(one) in groups
            for one in psutil.process_iter(["cmdline"])
        )

    def interrupt(self) -> None:
        """Ctrl-C: the terminal sends it to the whole group."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
            self._process.wait(60)


def _group(process: psutil.Process) -> int | None:
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return None


class Browser:
    """Headless Chromium on one page at a time."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self._driver, self._url = driver, url

    def open(self, path: str) -> None:
        self._driver.get(self._url + path)

    def go(self, path: str) -> None:
        """Show a page as a link to it does, which loads nothing of the interface anew."""
        if not self.address().startswith(self._url):
            return self.open(path)
        change = (
            "history.pushState({}, '', arguments[0]); dispatchEvent(new PopStateEvent('popstate'))"
        )
        self._driver.execute_script(change, path)

    def resize(self, width: int, height: int) -> None:
        """Make the page so many pixels wide and high."""
        self._driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def script(self, text: str) -> Any:
        """Run JavaScript on the page; what it returns."""
        return self._driver.execute_script(text)

    def text(self) -> str:
        """What the page shows, as text."""
        return str(self._driver.execute_script("return document.body.innerText"))

    def see(self, *texts: str) -> str:
        """Wait until the page shows all of these; returns all that it shows."""
        shown = ""

        def all_there() -> bool:
            nonlocal shown
            shown = self.text()
            return all(text in shown for text in texts)

        try:
            until("the text", all_there)
        except AssertionError:
            missing = [text for text in texts if text not in shown]
            raise AssertionError(f"{self._driver.current_url} lacks {missing}:\n{shown}") from None
        return shown

    def click(self, css: str) -> None:
        self._click(css, lambda: self._last(By.CSS_SELECTOR, css))

    def do(
        self,
        act: Callable[[], object],
        *,
        until_seen: Callable[[], object],
        seconds: float = EFFECT_SECONDS,
    ) -> None:
        """Do something until it has its effect: a page that is drawn anew loses clicks.

        Args:
            act: what may be done again.
            until_seen: whether it has its effect.
            seconds: how long that may take.
        """

        def done() -> bool:
            act()
            with suppress(AssertionError):
                until("the effect", until_seen, seconds)
                return True
            return False

        until("the effect of a click", done)

    def shows(self, *texts: str) -> bool:
        """Whether the page shows all of these."""
        shown = self.text()
        return all(text in shown for text in texts)

    def there(self, css: str) -> bool:
        """Whether the page has such an element."""
        return self._last(By.CSS_SELECTOR, css) is not None

    def address(self) -> str:
        """The URL of the page."""
        return str(self._driver.current_url)

    def leave(self) -> None:
        """Show nothing: a page asks the webserver again and again, and is drawn anew."""
        self._driver.get("about:blank")

    def write(self, css: str, text: str) -> None:
        """Type a text into a field."""
        self.has(css).send_keys(text)

    def click_text(self, text: str) -> None:
        """Click the last element that has just this text (the menus come first)."""
        self._click(text, lambda: self._last(By.XPATH, f"//*[normalize-space(text())='{text}']"))

    def press(self, text: str, inside: str = "body") -> None:
        """Click the enabled button or tab whose text begins so; of several, the one with the least.

        Args:
            text: the first of its words.
            inside: CSS selector of what it is in.
        """
        self._click(text, lambda: self._button(text, inside))

    def can_press(self, text: str, inside: str = "body") -> bool:
        """Whether there is what `press` would click."""
        return self._button(text, inside) is not None

    def buttons(self, text: str) -> list[bool]:
        """Tell of each button with exactly this text whether it can be pressed."""
        find = """
            return [...document.querySelectorAll("button")]
                .filter(e => e.innerText.trim() === arguments[0]).map(e => !e.disabled);
        """
        found: list[bool] = self._driver.execute_script(find, text)
        return found

    def _button(self, text: str, inside: str) -> Any:
        find = """
            const [text, inside] = arguments;
            const kinds = ["button", "[role=tab]", "[role=button]", "[role=menuitem]"];
            const found = [...document.querySelectorAll(kinds.map(k => `${inside} ${k}`).join())]
                .filter(e => e.innerText.trim().startsWith(text) && !e.disabled);
            found.sort((a, b) => a.innerText.length - b.innerText.length);
            return found[0];
        """
        return self._driver.execute_script(find, text, inside)

    def escape(self) -> None:
        """Press Escape, which closes the topmost menu or dialog."""
        self._driver.switch_to.active_element.send_keys(Keys.ESCAPE)

    def has(self, css: str) -> Any:
        """Wait for an element; returns the last of those that are there."""
        return until(css, lambda: self._last(By.CSS_SELECTOR, css))

    def _last(self, by: str, what: str) -> Any:
        found = self._driver.find_elements(by, what)
        return found[-1] if found else None

    def _click(self, what: str, find: Callable[[], Any]) -> None:
        def clicked() -> bool:
            try:
                element = find()
                if element is None:
                    return False
                element.click()
            except (
                exceptions.StaleElementReferenceException,
                exceptions.ElementNotInteractableException,
                exceptions.ElementClickInterceptedException,
            ):
                return False  # drawn anew meanwhile, or something is before it for a moment
            return True

        try:
            until(what, clicked)
        except AssertionError:
            raise AssertionError(
                f"{self._driver.current_url} has no {what!r} to click:\n{self.text()}"
            ) from None

    def picture(self, path: Path, *, settle_seconds: float = 1.0) -> None:
        """Save what is seen as PNG, once nothing moves any more."""
        time.sleep(settle_seconds)
        before, now = b"", self._driver.get_screenshot_as_png()
        for _ in range(20):
            if before == now:
                break
            time.sleep(0.3)
            before, now = now, self._driver.get_screenshot_as_png()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(now)


@contextmanager
def browser(url: str, profile: Path) -> Iterator[Browser]:
    """A browser with a new profile. Skips the test where Debian's Chromium is not installed."""
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        pytest.skip("needs Chromium: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = str(programs[0])
    for argument in _arguments(profile):
        options.add_argument(argument)
    # the driver is named, so that Selenium looks for none in the network
    driver = webdriver.Chrome(options=options, service=Service(str(programs[1])))
    try:
        found = Browser(driver, url)
        found.resize(WIDTH, HEIGHT)
        yield found
    finally:
        driver.quit()


def _arguments(profile: Path) -> Sequence[str]:
    return (
        "--headless",
        "--no-sandbox",  # Chromium refuses to run as root with it
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
        f"--window-size={WIDTH},{HEIGHT}",
        f"--user-data-dir={profile}",
    )
