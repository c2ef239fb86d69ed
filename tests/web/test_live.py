"""The page of a real monitor, with API servers that only pretend."""

from __future__ import annotations

import signal

from tests.helpers import page
from tests.monitor import harness
from tests.monitor.fake_guest import FakeGuest

from .browser import Browser


def test_a_session_comes_and_goes_and_the_monitor_stops(browser: Browser) -> None:
    with harness.monitor("--pool", "1", "--grace", "200", "--http", "127.0.0.1:0") as monitor:
        browser.open(page.link(monitor.runtime))
        browser.wait("document.querySelectorAll('#servers li').length === 1", "the API server")
        browser.wait("document.querySelector('.gpu .pill').textContent === 'Up'", "the device")
        with FakeGuest(monitor.address, monitor.token, program=b"trainer", function=b"resnet") as guest:
            browser.wait("document.querySelectorAll('#sessions tbody tr').length === 1", "the session")
            assert "trainer" in browser.text("#sessions")
            assert "function resnet" in browser.text("#sessions")
            monitor.process.send_signal(signal.SIGTERM)
            browser.wait("document.querySelector('#link').textContent === 'Draining'", "draining")
            assert guest.echo(b"still here") == b"still here"
        browser.wait("document.querySelector('#link').textContent === 'Monitor gone'", "the end")
    browser.complaints()
