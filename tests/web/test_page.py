"""The page in a real browser, in all its states."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from gpuferry.specs._generated import control_pb2

from tests.helpers.ports import lasting_ports

from .browser import Browser
from .stage import GIB, Stage, device, empty, monitor, server, session

LIVE = "document.body.dataset.link === 'live' && document.querySelectorAll('.gpu').length"
SAYS_NOTHING = "document.querySelector('#notices').innerText === ''"
STATE = control_pb2


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage(empty()) as stage:
        yield stage


def turns(**shares: float) -> control_pb2.DeviceTurns:
    """What sessions s1, s2, … have had."""
    had = [control_pb2.Share(session=int(name[1:]), share=share) for name, share in shares.items()]
    return control_pb2.DeviceTurns(sharing="time", tokens=1, shares=had)


def busy(uptime: float = 100.0, calls: int = 0) -> control_pb2.StatusReply:
    return control_pb2.StatusReply(
        monitor=monitor(uptime_seconds=uptime, sessions_granted=17),
        devices=[
            device(
                0,
                utilization=0.83,
                memory_used=15 * GIB,
                memory_granted=24 * GIB,
                memory_in_host=8 * GIB,
                memory_on_disk=GIB,
                pool_idle=0,
                turns=turns(s11=0.5, s12=0.3, s13=0.05, s14=0.04, s15=0.03, s16=0.02),
            ),
            device(1, memory_granted=8 * GIB, pool_idle=1),
        ],
        servers=[
            server(0, 900, state=STATE.SERVER_STATE_BUSY, session=11),
            server(0, 901, state=STATE.SERVER_STATE_BUSY, session=12),
            server(1, 902),
        ],
        sessions=[
            session(11, function="resnet50", tenant="vision", calls_async=1000 + calls),
            session(12, program="<img src=x onerror=document.title='owned'>", memory_quota=16 * GIB),
        ],
        queue=[
            control_pb2.Waiting(session=15, program="infer.py", memory=30 * GIB, waited_seconds=12),
            control_pb2.Waiting(session=16, program="notebook", waited_seconds=3),
        ],
    )


@pytest.mark.system
def test_empty(browser: Browser, stage: Stage) -> None:
    browser.open(stage.link)
    browser.wait(LIVE, "live page")
    assert "gpu-a" in browser.text("#where")
    assert browser.run("return document.querySelectorAll('.gpu').length") == 2
    assert "No program uses a GPU" in browser.text("#sessions-empty")
    assert "Nobody waits" in browser.text("#queue-empty")
    assert "No session has moved" in browser.text("#migrations-empty")
    # Of a monitor that was silent for 4 s it says so, until it hears of it again.
    browser.wait(f"{SAYS_NOTHING} && document.querySelector('#link').textContent === 'Live'", "nothing wrong")
    assert browser.run("return document.querySelector('#sessions').hidden") is True
    assert browser.complaints() == []


@pytest.mark.system
def test_busy(browser: Browser, stage: Stage) -> None:
    browser.open(stage.link)
    browser.wait(LIVE, "live page")
    stage.show(busy())
    browser.wait("document.querySelectorAll('#sessions tbody tr').length === 2", "sessions")
    gpu = browser.text(".gpu[data-key='0']")
    for figure in ("83 %", "15 GiB of 40 GiB", "granted 24 GiB", "0 of 2 API servers idle", "41 °C"):
        assert figure in gpu
    row = browser.text("#sessions tbody tr")
    for figure in ("train.py", "function resnet50", "tenant vision", "3 GiB of 8 GiB", "1 min 15 s"):
        assert figure in row
    assert browser.text("#sessions-count") == "2"
    queue = browser.text("#queue tbody")
    assert queue.index("infer.py") < queue.index("30 GiB") < queue.index("notebook") < queue.index("default")
    servers = browser.text("#servers")
    assert "session 11" in servers
    assert "idle" in servers


@pytest.mark.system
def test_a_crowd_of_sessions_leaves_the_queue_within_reach(browser: Browser, stage: Stage) -> None:
    """The queue of a server with a thousand sessions stood below 60,000 pixels of them."""
    browser.open(stage.link)
    browser.wait(LIVE, "live page")
    crowd = [session(number) for number in range(1, 101)]
    stage.show(control_pb2.StatusReply(monitor=monitor(), devices=[device(0)], sessions=crowd))
    browser.wait("document.querySelectorAll('#sessions tbody tr').length === 100", "sessions")
    panel = "document.querySelector('#sessions').parentElement"
    browser.run(f"{panel}.scrollTop = {panel}.scrollHeight")
    assert browser.run(f"return 0 < {panel}.scrollTop && {panel}.clientHeight < window.innerHeight")
    top = "getBoundingClientRect().top"
    heads = f"document.querySelector('#sessions th').{top} - {panel}.{top}"
    assert 0 <= browser.run(f"return {heads}") < 3


@pytest.mark.system
def test_api_servers_that_have_no_process_yet_leave_nothing_behind(browser: Browser, stage: Stage) -> None:
    browser.open(stage.link)
    browser.wait(LIVE, "live page")
    waiting = [server(0, 0, state=STATE.SERVER_STATE_STARTING) for _ in range(4)]
    for servers in (waiting, waiting, waiting, [server(0, 977)]):
        stage.show(control_pb2.StatusReply(monitor=monitor(), devices=[device(0)], servers=servers))
    browser.wait("document.querySelector('#servers').textContent.includes('pid 977')", "the one that started")
    assert browser.run("return document.querySelectorAll('#servers > li').length") == 1


@pytest.mark.system
def test_rates_come_from_two_looks(browser: Browser, stage: Stage) -> None:
    browser.open(stage.link)
    browser.wait(LIVE, "live page")
    stage.show(busy(100.0))
    browser.wait("document.querySelectorAll('#sessions tbody tr').length === 2", "sessions")
    # Whoever comes late finds the next look, in which nothing was called.
    rate = "document.querySelector('#sessions tbody tr').children[3].textContent"
    watch = f"window.rates = []; new MutationObserver(() => window.rates.push({rate}))"
    browser.run(watch + ".observe(document, {subtree: true, childList: true, characterData: true})")
    stage.show(busy(102.0, calls=5000))
    browser.wait("window.rates.includes('2500')", "calls per second")


def test_names_are_only_text(browser: Browser, stage: Stage) -> None:
    stage.show(busy())
    browser.open(stage.link)
    browser.wait("document.querySelectorAll('#sessions tbody tr').length === 2", "sessions")
    assert "<img src=x" in browser.text("#sessions")
    assert browser.run("return document.querySelectorAll('#sessions img').length") == 0
    assert "owned" not in browser.driver.title


@pytest.mark.system
def test_rows_stay_the_same_elements(browser: Browser, stage: Stage) -> None:
    stage.show(busy())
    browser.open(stage.link)
    browser.wait("document.querySelectorAll('#sessions tbody tr').length === 2", "sessions")
    browser.run("window.kept = document.querySelector('#sessions tbody tr:nth-child(2)')")
    later = busy(101.0)
    del later.sessions[0]
    stage.show(later)
    browser.wait("document.querySelectorAll('#sessions tbody tr').length === 1", "the session's end")
    assert browser.run("return document.querySelector('#sessions tbody tr') === window.kept")


@pytest.mark.system
def test_the_past_is_drawn(browser: Browser, stage: Stage) -> None:
    def past(age: int) -> list[control_pb2.Device]:
        known = not 100 < age <= 110
        return [device(0, utilization=0.5 if known else None), device(1, utilization=1.0)]

    stage.remember(300, past)
    browser.open(stage.link)
    browser.wait("document.querySelectorAll('.chart .utilization').length >= 3", "charts")
    lines = browser.run("return document.querySelectorAll('.gpu[data-key=\"0\"] path.utilization').length")
    assert lines == 2  # nothing is known of ten seconds, and nothing is drawn there
    chart = "document.querySelector('.gpu[data-key=\"0\"] .utilization .chart')"
    point = f"new PointerEvent('pointermove', {{clientX: {chart}.getBoundingClientRect().left + "
    browser.run(f"{chart}.dispatchEvent({point}{chart}.getBoundingClientRect().width * 0.75}}))")
    browser.wait(
        "document.querySelector('.gpu[data-key=\"0\"] .value').textContent.includes('ago')", "the figure then"
    )
    assert "50 %" in browser.text(".gpu[data-key='0'] .value")


@pytest.mark.system
def test_shares_are_drawn_over_time(browser: Browser, stage: Stage) -> None:
    def past(age: int) -> list[control_pb2.Device]:
        return [device(0, turns=turns(s1=0.6) if age > 60 else turns(s1=0.3, s2=0.6)), device(1)]

    status = empty()
    status.devices[0].turns.CopyFrom(turns(s1=0.3, s2=0.6))
    stage.show(status)  # first: each second a point of what is shown is added to the past
    stage.remember(120, past)
    browser.open(stage.link)
    card = ".gpu[data-key='0'] .shares"
    browser.wait(f"document.querySelectorAll(\"{card} path[class$='-area']\").length === 3", "two and others")
    assert "session 1 30 %" in browser.text(f"{card} .label")
    assert "90 %" in browser.text(f"{card} .value")
    label = f'return document.querySelector("{card} svg").ariaLabel'
    assert browser.run(label) == "Shares of GPU 0: session 1 30 %, session 2 60 %"
    tops = f"""
        const highest = (name) => {{
            const d = document.querySelector(`{card} path.${{name}}`).getAttribute('d');
            return [...d.matchAll(/ ([0-9.]+)/g)].map((found) => Number(found[1]));
        }};
        return [highest('share-1'), highest('share-2')];
    """
    one, two = browser.run(tops)  # of 60 points from the top
    assert (one[0], one[-1], two[0], two[-1]) == (24.0, 42.0, 24.0, 6.0)
    assert browser.run("return document.querySelector(\".gpu[data-key='1'] .shares\").hidden") is True
    assert browser.complaints() == []


@pytest.mark.system
def test_where_memory_is_is_drawn_over_time(browser: Browser, stage: Stage) -> None:
    def past(age: int) -> list[control_pb2.Device]:
        away = {"memory_in_host": 20 * GIB, "memory_on_disk": 10 * GIB} if age < 30 else {}
        return [device(0, memory_resident=30 * GIB, **away), device(1, memory_resident=GIB)]

    status = empty()
    status.devices[0].MergeFrom(past(0)[0])
    stage.show(status)
    stage.remember(60, past)
    browser.open(stage.link)
    card = ".gpu[data-key='0'] .residency"
    browser.wait(f"document.querySelectorAll(\"{card} path[class$='-area']\").length === 3", "three places")
    assert "30 GiB" in browser.text(f"{card} .value")
    label = browser.run(f'return document.querySelector("{card} svg").ariaLabel')
    assert label.endswith("30 GiB here, 20 GiB in host memory, 10 GiB on disk")
    assert browser.run("return document.querySelector(\".gpu[data-key='1'] .residency\").hidden") is True
    assert browser.complaints() == []


def test_a_device_lost(browser: Browser, stage: Stage) -> None:
    browser.open(stage.link)
    browser.wait(LIVE, "live page")
    lost = empty()
    gone = device(1, state=STATE.DEVICE_STATE_LOST, utilization=None, memory_used=None, power=None)
    lost.devices[1].CopyFrom(gone)
    stage.show(lost)
    browser.wait("document.querySelector('.gpu[data-state=\"lost\"]')", "the lost device")
    assert "GPU 1 is lost" in browser.text("#notices")
    card = browser.text(".gpu[data-key='1']")
    assert "Lost" in card
    assert "–" in card
    assert "Up" in browser.text(".gpu[data-key='0']")
    stage.show(empty())
    browser.wait("!document.querySelector('.gpu[data-state=\"lost\"]')", "the device's return")
    browser.wait(SAYS_NOTHING, "nothing wrong")


def test_a_device_without_api_servers(browser: Browser, stage: Stage) -> None:
    failing = empty(1)
    failing.devices[0].state = STATE.DEVICE_STATE_FAILING
    stage.show(failing)
    browser.open(stage.link)
    browser.wait("document.querySelector('.gpu[data-state=\"failing\"]')", "the failing device")
    assert "GPU 0 starts no API server" in browser.text("#notices")


@pytest.mark.system
def test_no_figures(browser: Browser, stage: Stage) -> None:
    blind = empty(1)
    blind.monitor.gpu_stats_problem = "NVML Shared Library Not Found"
    blind.devices[0].CopyFrom(device(0, utilization=None, memory_used=None, temperature=None, power=None))
    stage.show(blind)
    browser.open(stage.link)
    browser.wait("document.querySelector('.notice')", "a notice")
    assert "NVML Shared Library Not Found" in browser.text("#notices")
    assert "– of 40 GiB" in browser.text(".gpu")


@pytest.mark.system
def test_drained(browser: Browser, stage: Stage) -> None:
    drained = busy()
    drained.monitor.draining = True
    browser.open(stage.link)
    browser.wait(LIVE, "live page")
    stage.show(drained)
    browser.wait("document.querySelector('#link').textContent === 'Draining'", "the state")
    assert "takes no new sessions; 2 that run may end" in browser.text("#notices")
    del drained.sessions[:]
    stage.show(drained)
    browser.wait("document.querySelector('#notices').textContent.includes('none runs')", "the last one's end")


@pytest.mark.system
def test_the_monitor_goes_and_comes_back(browser: Browser) -> None:
    with lasting_ports(1) as (port,):
        address = f"127.0.0.1:{port}"
        with Stage(busy(), address) as stage:
            browser.open(stage.link)
            browser.wait("document.querySelectorAll('#sessions tbody tr').length === 2", "sessions")
        browser.wait("document.body.dataset.link === 'gone'", "the end")
        assert browser.text("#link") == "Monitor gone"
        assert "does not answer" in browser.text("#notices")
        assert "train.py" in browser.text("#sessions")  # the last that was known
        with Stage(empty(), address):
            browser.wait("document.querySelector('#link').textContent === 'Live'", "the return")
            browser.wait(SAYS_NOTHING, "nothing wrong")
            assert browser.run("return document.querySelector('#sessions').hidden") is True
        browser.complaints()


def test_migrations_are_a_timeline(browser: Browser, stage: Stage) -> None:
    moved = busy()
    moved.migrations.add(
        id=1,
        session=11,
        source="gpu 1",
        target="gpu 0",
        state=STATE.MIGRATION_STATE_DONE,
        started_seconds_ago=300,
        seconds=6,
        downtime_seconds=0.18,
        bytes=3 * GIB,
    )
    stage.show(moved)
    browser.open(stage.link)
    browser.wait("document.querySelectorAll('.lane').length === 1", "the migration")
    assert "session 11: gpu 1 → gpu 0" in browser.text(".lane")
    assert "3 GiB, down 180 ms" in browser.text(".lane")
    place = browser.run("return document.querySelector('.lane rect.done').x.baseVal.value / 600")
    assert place == pytest.approx(0.5)


@pytest.mark.system
@pytest.mark.some(1)
@pytest.mark.parametrize("width", [390, 1280])
def test_why_a_migration_failed_can_be_read(browser: Browser, stage: Stage, width: int) -> None:
    moved = busy()
    moved.migrations.add(
        session=11,
        source="gpu 1",
        target="/var/lib/" + "x" * 80,
        state=STATE.MIGRATION_STATE_FAILED,
        started_seconds_ago=300,
        reason="no space left on device: 3221225472 bytes were to be written",
    )
    stage.show(moved)
    browser.look(width)
    browser.open(stage.link)
    browser.wait("document.querySelectorAll('.lane').length === 1", "the migration")
    clipped = """
        const edge = document.querySelector('#migrations').getBoundingClientRect().right;
        return [...document.querySelectorAll('.lane p')].filter((p) =>
            p.scrollWidth > p.clientWidth || p.getBoundingClientRect().right > edge).map((p) => p.className);
    """
    assert browser.run(clipped) == []


@pytest.mark.system
def test_a_session_on_no_device_and_one_on_two(browser: Browser, stage: Stage) -> None:
    away = busy()
    away.sessions[0].ClearField("device")
    away.sessions[1].devices[:] = [0, 1]
    stage.show(away)
    browser.open(stage.link)
    browser.wait("document.querySelectorAll('#sessions tbody tr').length === 2", "sessions")
    cells = browser.run(
        "return [...document.querySelectorAll('#sessions [data-label=GPU]')].map((c) => c.textContent)"
    )
    assert cells == ["–", "0,1"]


@pytest.mark.system
@pytest.mark.some(1)
@pytest.mark.parametrize("width", [320, 390, 768])
def test_nothing_is_wider_than_the_screen(browser: Browser, stage: Stage, width: int) -> None:
    status = busy()
    status.sessions[0].program = "a-name-without-a-single-space-" * 4
    stage.show(status)
    browser.look(width)
    browser.open(stage.link)
    browser.wait("document.querySelectorAll('#sessions tbody tr').length === 2", "sessions")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    outside = """
        return [...document.querySelectorAll('main *')].filter((one) => {
            const box = one.getBoundingClientRect();
            return box.width > 1 && getComputedStyle(one).clipPath === 'none' && !one.closest('thead')
                && (box.right > innerWidth + 0.5 || box.left < -0.5);
        }).map((one) => one.outerHTML.slice(0, 80));
    """
    assert browser.run(outside) == []
    if width < 720:
        label = "return getComputedStyle(document.querySelector('td[data-label]'), '::before').content"
        assert "GPU" in browser.run(label)


@pytest.mark.system
@pytest.mark.some(1)
@pytest.mark.parametrize("dark", [False, True])
def test_text_has_contrast(browser: Browser, stage: Stage, dark: bool) -> None:
    """At least 4.5 to 1 (WCAG AA) for every piece of text, in both schemes."""
    status = busy()
    status.monitor.draining = True
    status.devices[1].state = STATE.DEVICE_STATE_FAILING
    stage.show(status)
    browser.look(1280, dark=dark)
    browser.open(stage.link)
    browser.wait("document.querySelectorAll('.notice').length === 2", "notices")
    script = """
        const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
        const onto = (over, under) => {
            canvas.fillStyle = `rgb(${under})`; canvas.fillRect(0, 0, 1, 1);
            canvas.fillStyle = over; canvas.fillRect(0, 0, 1, 1);
            return [...canvas.getImageData(0, 0, 1, 1).data.slice(0, 3)];
        };
        const ground = (one) => one === null ? [255, 255, 255]
            : onto(getComputedStyle(one).backgroundColor, ground(one.parentElement));
        const light = (rgb) => rgb.map((c) => c / 255)
            .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
            .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
        const found = [];
        const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        while (walker.nextNode()) {
            const one = walker.currentNode.parentElement;
            const text = walker.currentNode.data.trim();
            if (!text || !one.checkVisibility() || one.closest('noscript')) continue;
            const under = ground(one);
            const pair = [under, onto(getComputedStyle(one).color, under)].map(light).sort((a, b) => b - a);
            const contrast = (pair[0] + 0.05) / (pair[1] + 0.05);
            if (contrast < 4.5) found.push(`${contrast.toFixed(2)}: ${text.slice(0, 40)}`);
        }
        return found;
    """
    assert browser.run(script) == []


def test_what_is_drawn_is_also_said(browser: Browser, stage: Stage) -> None:
    stage.show(busy())
    browser.open(stage.link)
    browser.wait("document.querySelectorAll('#sessions tbody tr').length === 2", "sessions")
    drawings = "[...document.querySelectorAll('svg:not([aria-hidden])')]"
    unnamed = f"return {drawings}.filter((one) => one.role !== 'img' || !one.ariaLabel).length"
    assert browser.run(unnamed) == 0
    labels = browser.run(f"return {drawings}.map((one) => one.ariaLabel)")
    assert "Utilisation of GPU 0: 83 % now" in labels
    assert browser.run("return document.documentElement.lang") == "en"
    assert browser.run("return document.querySelectorAll('h1').length") == 1
    headless = "return [...document.querySelectorAll('th')].filter((one) => one.scope !== 'col').length"
    assert browser.run(headless) == 0


def test_nothing_comes_from_outside(browser: Browser, stage: Stage) -> None:
    browser.open(stage.link)
    browser.wait(LIVE, "live page")
    asked = browser.requests()
    assert any(url.endswith("/api/events") for url in asked)
    assert {urlsplit(url).netloc for url in asked} == {urlsplit(stage.url).netloc}
    policy = browser.run("return fetch('/').then((answer) => answer.headers.get('content-security-policy'))")
    assert "default-src 'none'" in policy
    assert "http" not in policy
