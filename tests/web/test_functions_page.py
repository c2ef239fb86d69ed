"""The page of functions in a real browser."""

from __future__ import annotations

import pytest
from gpuferry.monitor.functions.key import page_key

from tests.functions.serving import Meeting, Server, serving
from tests.functions.test_cuda import CUDA
from tests.helpers.monitor import monitor

from .browser import Browser

ROWS = "document.querySelectorAll('#functions tbody tr').length"


def link(server: Server) -> str:
    return f"http://{server.address}/#{page_key(server.token.encode())}"


def words(table: str) -> str:
    """JavaScript for what its rows say."""
    return f"document.querySelector('{table} tbody').innerText.trim().split(/\\s+/).join(' ')"


@pytest.mark.system
def test_the_page_shows_functions_as_they_are(browser: Browser) -> None:
    with serving("--driver", "none", "--policy", "mqfq") as server:
        browser.open(link(server))
        browser.wait("!document.querySelector('#none').hidden", "that there is none yet")
        assert "#" not in browser.driver.current_url  # the key leaves the address
        server.deploy("busy", most=1)
        held = Meeting(server, "busy")
        held.come()
        browser.wait(f"{ROWS} === 1", "the function")
        browser.wait("document.querySelector('#replicas').innerText.includes('busy')", "its replica")
        browser.wait(f"{words('#functions')}.startsWith('busy 0 1 ')", "that one runs, and none waits")
        assert browser.run("return document.querySelector('#cards').hidden"), "GPUs of which nobody knows"
        assert "policy mqfq" in browser.text("#where")
        held.go("on")
        assert held.asked.got().status == 200
        browser.wait("document.querySelector('#functions td:nth-child(3)').innerText === '0'", "its end")
        browser.look(400)
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth"), "it is too wide"
        assert browser.complaints() == []
        browser.run("sessionStorage.clear()")
        browser.wait("!document.querySelector('#ask').hidden", "the question for the key")
        server.system("DELETE", "functions/busy")
    browser.wait("document.querySelector('#link').innerText === 'No answer'", "that nobody answers")


@pytest.mark.system
def test_the_page_shows_what_is_on_which_gpu(browser: Browser) -> None:
    environment = {"GPUFERRY_DEVICE": "sim", "GPUFERRY_SIM_MEMORY": "128MiB", "GPUFERRY_SIM_DEVICES": "1"}
    with monitor(environment=environment) as gpus:
        settings = gpus.settings() | {"GPUFERRY_CONTROL": gpus.control}
        with serving("--policy", "lalb", environment=settings) as server:
            server.knows_gpus()
            server.deploy("model", CUDA, most=1)
            assert server.invoke("model").status == 200
            browser.open(link(server))
            browser.wait(
                f"{words('#gpus')} === '0 128 MiB 0 model'", "what is on the GPU, and that nothing runs"
            )
            browser.look(400)
            assert browser.run("return document.documentElement.scrollWidth <= innerWidth"), "it is too wide"
            assert browser.complaints() == []
