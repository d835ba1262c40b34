# Licensed to the Apache Software Foundation (ASF) under one or more contributor license
# agreements.  See the NOTICE file distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file to you under the Apache License,
# Version 2.0 (the "License"); you may not use this file except in compliance with the
# License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software distributed under the
# License is distributed on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND,
# either express or implied.  See the License for the specific language governing permissions
# and limitations under the License.
"""The page of ``tvm-fixes report`` in headless Chromium."""

import importlib.util
import os
import shutil
from dataclasses import replace

import pytest
import tvm.testing

from helpers.reports import layered
from tvm_fixes.runtime.report import FLOAT64, REFERENCE_OFF

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and importlib.util.find_spec("playwright")),
    reason="chromium (Debian's package) or playwright (pip install playwright) is not installed",
)

# Pages take a second: this stops only a browser that hangs.
TIMEOUT_MS = 60_000


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

    # Chromium has no sandbox for root.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield browser
        browser.close()


class Page:
    """A report's page, and its errors, dialogs and requests: it must have none."""

    def __init__(self, browser, path, **options):
        size = {"width": 1280, "height": 900}
        self.page = browser.new_page(viewport=size, **options)
        self.page.set_default_timeout(TIMEOUT_MS)
        self.problems = []
        self.page.on("console", self._listen)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(dialog.message))
        self.page.on("request", lambda request: self._look_at(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_function("window.report && window.report.graph.drawn > 0")

    def _listen(self, message):
        if message.type == "error":
            self.problems.append(message.text)

    def _look_at(self, url):
        if not url.startswith(("file:", "data:", "blob:")):
            self.problems.append(url)

    def call(self, script):
        return self.page.evaluate(script)

    def frame(self):
        """Wait until the canvas is drawn."""
        self.call("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def click_node(self, index):
        point = self.call(f"report.graph.at({index})")
        self.page.locator("#canvas").click(position=point)

    def pixel(self, index):
        """The color near the left edge of a node, as #rrggbb."""
        return self.call(
            f"""(() => {{
                const {{ x, y }} = report.graph.at({index}), scale = report.graph.view.scale;
                const left = (x - 82 * scale) * devicePixelRatio, top = y * devicePixelRatio;
                const [r, g, b] = report.graph.context.getImageData(left, top, 1, 1).data;
                return "#" + [r, g, b].map((v) => v.toString(16).padStart(2, "0")).join("");
            }})()"""
        )


@pytest.fixture
def opened(chromium, tmp_path):
    """Opens a report's page; at the end, checks that it had no errors, dialogs or requests."""
    pages = []

    def open_page(found, **options):
        path = tmp_path / f"page{len(pages)}.html"
        found.save(path)
        pages.append(Page(chromium, path, **options))
        return pages[-1]

    yield open_page
    for page in pages:
        page.page.close()
        assert page.problems == []


@pytest.mark.parametrize("number", [20, 500, 5000])
def test_all_kernels_are_drawn_and_can_be_hit(opened, number):
    page = opened(layered(number))
    assert page.call("report.graph.drawn") == number
    every = range(0, number, max(1, number // 50))
    hits = page.call(
        f"""{list(every)}.map((index) => {{
            const {{ x, y }} = report.graph.at(index);
            return report.graph.nodeAt(x, y);
        }})"""
    )
    assert hits == list(every)
    page.click_node(number // 2)
    assert page.call("report.graph.selected") == number // 2
    assert f"part{number // 2}" in page.page.locator("#details").inner_text()
    page.page.keyboard.press("Enter")
    page.frame()
    assert 0 < page.call("report.graph.drawn") <= number
    assert page.call("report.graph.view.scale") >= 0.9


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nodes_are_coloured_by_what_is_chosen(opened, scheme):
    page = opened(layered(30), color_scheme=scheme)
    fills = {}
    for key in ("seconds", "error", "nbytes", "layout"):
        page.page.select_option("#color", key)
        page.frame()
        fills[key] = page.call("report.graph.fills")
        assert page.pixel(3) == fills[key][3]
        values = page.call(f"report.values.graph.map((call) => call.{key})")
        largest = max(range(30), key=lambda at: values[at])
        if key != "layout":
            ends = page.call("report.graph.theme")[key]
            least = min(range(30), key=lambda at: values[at])
            same = [at for at in range(30) if values[at] == values[largest]]
            assert {fills[key][at] for at in same} != {fills[key][least]}
            assert key == "error" or fills[key][largest] == ends[-1]
        else:
            by_layout = dict(zip(values, fills[key], strict=True))
            assert len(by_layout) == len(set(by_layout.values())) == 3
            assert [by_layout[v] for v in values] == fills[key]
    assert len({tuple(colours) for colours in fills.values()}) == 4
    assert "NHWC" in page.page.locator("#legend").inner_text()


def test_another_theme_has_other_colours(opened):
    page = opened(layered(5), color_scheme="light")
    light = page.call("report.graph.fills")
    page.page.emulate_media(color_scheme="dark")
    page.frame()
    assert page.call("report.graph.fills") != light


def test_a_search_finds_nodes_modules_and_kernels(opened):
    page = opened(layered(500))
    page.page.keyboard.press("/")
    page.page.keyboard.type("PART321")
    assert page.page.locator("#matches").inner_text() == "1 found"
    page.page.keyboard.press("Enter")
    assert page.call("report.graph.selected") == 321
    assert page.page.locator("#matches").inner_text() == "1 of 1"
    page.page.fill("#search", "layers.7.")
    assert page.page.locator("#matches").inner_text() == "10 found"
    page.page.keyboard.press("Enter")
    page.page.keyboard.press("Enter")
    assert page.call("report.graph.selected") == 71
    page.page.keyboard.press("Shift+Enter")
    page.page.keyboard.press("Shift+Enter")
    assert page.call("report.graph.selected") == 79
    page.page.fill("#search", "no such name")
    assert page.page.locator("#matches").inner_text() == "0 found"


def test_keys_follow_the_data_and_buttons_zoom(opened):
    page = opened(layered(20))
    page.page.locator("#canvas").focus()
    for key, selected in (("ArrowDown", 0), ("ArrowDown", 1), ("ArrowRight", 2), ("ArrowUp", 1)):
        page.page.keyboard.press(key)
        assert page.call("report.graph.selected") == selected
    page.page.keyboard.press("Escape")
    assert page.call("report.graph.selected") is None
    fitted = page.call("report.graph.view.scale")
    page.page.click("#in")
    assert page.call("report.graph.view.scale") == pytest.approx(1.4 * fitted)
    page.page.locator("#canvas").hover()
    page.page.mouse.wheel(0, -200)
    page.page.wait_for_function(f"report.graph.view.scale > {1.5 * fitted}")
    page.page.click("#fit")
    assert page.call("report.graph.view.scale") == fitted
    before = page.call("report.graph.at(0)")
    page.page.mouse.move(300, 400)
    page.page.mouse.down()
    page.page.mouse.move(340, 430, steps=5)
    page.page.mouse.up()
    after = page.call("report.graph.at(0)")
    assert (after["x"] - before["x"], after["y"] - before["y"]) == pytest.approx((40, 30), abs=12)
    assert page.call("report.graph.selected") is None, "a drag is no click"


def test_edges_lead_to_what_a_call_reads(opened):
    page = opened(layered(20))
    page.click_node(4)
    links = page.page.locator("#details .link")
    assert [text.split(" ")[0] for text in links.all_inner_texts()] == ["2", "3", "5", "9"]
    links.nth(0).click()
    assert page.call("report.graph.selected") == 2


def cells(page, column):
    return page.page.locator(f"#panel tbody td:nth-child({column})").all_inner_texts()


def test_tables_are_sorted_and_filtered(opened):
    number = 500
    page = opened(layered(number))
    values = page.call("report.values.graph")
    first = max(range(number), key=lambda at: values[at]["seconds"])
    assert values[int(cells(page, 1)[0])]["seconds"] == values[first]["seconds"]
    assert len(cells(page, 1)) == 200
    page.page.get_by_role("button", name="Show all 500").click()
    assert len(cells(page, 1)) == number
    page.page.get_by_role("button", name="Bytes").click()
    by_bytes = [values[int(text)]["nbytes"] for text in cells(page, 1)]
    assert by_bytes == sorted(by_bytes, reverse=True)
    page.page.get_by_role("button", name="Bytes").click()
    assert [values[int(text)]["nbytes"] for text in cells(page, 1)] == by_bytes[::-1]
    page.page.fill("#panel input", "part321")
    assert cells(page, 1) == ["321"]
    page.page.locator("#panel tbody tr").click()
    assert page.call("report.graph.selected") == 321


def test_each_tool_has_a_table(opened):
    page = opened(layered(20))
    tabs = page.page.locator("#tabs button")
    assert tabs.all_inner_texts() == ["Kernels", "Values", "Outputs", "Size", "Compilation"]
    expected = {"Values": "value19", "Outputs": "y", "Size": "weight3", "Compilation": "a-fix"}
    for title, text in expected.items():
        page.page.get_by_role("tab", name=title).click()
        assert page.page.locator("#panel").get_by_text(text, exact=True).count() == 1
    page.page.keyboard.press("ArrowLeft")
    assert page.page.locator("[role=tab][aria-selected=true]").inner_text() == "Size"
    tiles = page.page.locator("#tiles").inner_text()
    assert "20 equal" in tiles and "10 MB" in tiles and "20 calls" in tiles


def test_the_time_of_the_reference_is_shown(opened):
    page = opened(layered(20))
    assert "ONNX Runtime 1.31.1" in page.page.locator("#tiles").inner_text()
    titles = page.page.locator("#panel thead th").all_inner_texts()
    (place,) = [at for at, title in enumerate(titles, 1) if title.startswith("ONNX Runtime")]
    times = dict(zip(cells(page, 1), cells(page, place), strict=True))
    assert times["0"] == times["1"] and times["0"].endswith(", 2 kernels")
    assert times["2"].endswith("µs") and times["2"] != times["3"]
    page.click_node(0)
    details = page.page.locator("#details").inner_text()
    assert times["0"] in details and "Time in ONNX Runtime shared with" in details
    assert page.page.locator("#details .link").first.inner_text().startswith("1 ")


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u2028\ud800\u202eé"


def test_names_are_shown_and_do_not_run(opened):
    page = opened(layered(20, lambda name: f"{name}{HOSTILE}"))
    for title in page.page.locator("#tabs button").all_inner_texts():
        page.page.get_by_role("tab", name=title).click()
    page.click_node(3)
    page.frame()
    assert page.page.locator("main img, main script, header script").count() == 0
    shown = page.page.locator("#name").inner_text()
    assert shown == "layered.onnx" + HOSTILE.replace("\u2028", "\\u2028").replace(
        "\ud800", "\\ud800"
    ).replace("\u202e", "\\u202e")
    assert page.page.title().startswith("layered.onnx</script><script>alert(1)")
    assert "alert(2)" in page.page.locator("#details").inner_text()


def test_the_page_says_what_is_missing(opened):
    whole = layered(20)
    calls = tuple(replace(call, reads=None) for call in whole.manifest.kernels.calls)
    manifest = replace(
        whole.manifest,
        report=None,
        kernels=replace(whole.manifest.kernels, calls=calls),
    )
    page = opened(
        replace(whole, manifest=manifest, profile=None, no_profile="it has none", comparison=None)
    )
    notice = page.page.locator("#why").inner_text()
    assert "Times are not shown: it has none." in notice and "Edges are unknown" in notice
    assert page.page.locator("#color").input_value() == "nbytes"
    states = page.call("[...document.querySelectorAll('#color option')].map((o) => o.disabled)")
    assert states == [True, True, False, False]
    assert "not measured" in page.page.locator("#tiles").inner_text()
    tabs = page.page.locator("#tabs button").all_inner_texts()
    assert tabs == ["Kernels", "Size", "Compilation"]


def test_a_difference_is_outlined(opened):
    found = layered(20)
    values = list(found.comparison.values)
    result = replace(values[7].result, equal=False, max_rel_error=0.5, problem="off by 0.5")
    values[7] = replace(values[7], result=result)
    page = opened(replace(found, comparison=replace(found.comparison, values=values)))
    page.page.select_option("#color", "error")
    assert "differs" in page.page.locator("#legend").inner_text()
    assert "1 of 20 differ" in page.page.locator("#tiles").inner_text()
    assert page.call("report.graph.fills[7] === report.graph.theme.error.at(-1)")
    page.page.get_by_role("tab", name="Values").click()
    assert cells(page, 9)[7] == "off by 0.5"


def test_a_reference_that_is_off_is_no_fault(opened):
    found = layered(20)
    values = list(found.comparison.values)
    result = replace(values[7].result, equal=False, max_rel_error=0.5, reason=FLOAT64)
    values[7] = replace(values[7], result=result)
    page = opened(replace(found, comparison=replace(found.comparison, values=values)))
    tiles = page.page.locator("#tiles").inner_text()
    assert "1 of 20 differ" in tiles and "the float64 run agrees with ours" in tiles
    page.page.get_by_role("tab", name="Values").click()
    assert cells(page, 9)[7] == REFERENCE_OFF


def test_a_small_window_has_the_details_below(opened):
    page = opened(layered(20), device_scale_factor=2)
    page.page.set_viewport_size({"width": 420, "height": 800})
    page.frame()
    page.frame()
    assert page.call("report.graph.drawn") == 20
    assert page.call("document.documentElement.scrollWidth") <= 420
    canvas, details = (
        page.page.locator(f"#{name}").bounding_box() for name in ("canvas", "details")
    )
    assert details["y"] >= canvas["y"] + canvas["height"] - 1


if __name__ == "__main__":
    tvm.testing.main()
