"""The report in headless Chromium, offline and from a file: it is drawn, it answers, and hostile names run nothing."""

import shutil
import time

import pytest
from language_model_runs import write_llm_variants
from synthetic_runs import write_bench, write_run

from swell.report.write import write_report

CHROMIUM = shutil.which("chromium")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

PATIENCE_MS = 120_000
HOSTILE = [
    "<img src=x onerror=document.canary=1>",
    "</script><script>document.canary=1</script>",
    "<a href='javascript:document.canary=1'>link</a>",
    "%{x} %{customdata[0]} <extra>gone</extra>",
]
PLOTS = "[...document.querySelectorAll('.plot')].filter(plot => plot.data && plot.offsetParent)"
SCROLL_THROUGH = """async () => {
  for (const plot of document.querySelectorAll('.plot')) {
    plot.scrollIntoView();
    for (let tries = 0; tries < 200 && plot.offsetParent && !plot.querySelector('.main-svg'); tries++)
      await new Promise(requestAnimationFrame);
  }
}"""


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


class Visit:
    """A page that was opened offline, and everything that it asked for or complained about."""

    def __init__(self, browser, file):
        self.requests, self.complaints = [], []
        self.page = browser.new_context(offline=True, viewport={"width": 1100, "height": 800}).new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append("dialog"), dialog.dismiss()))
        self.page.goto(file.as_uri())
        self.page.evaluate(SCROLL_THROUGH)

    def plots(self, script):
        """Evaluates `script` for each plot that is drawn; `plot.data` are its traces."""
        return self.page.evaluate(f"{PLOTS}.map(plot => {script})")

    def wait_until(self, condition):
        """Playwright's own wait evaluates text inside the page, which the page's policy forbids."""
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while not self.page.evaluate(condition):
            assert time.monotonic() < deadline, condition
            self.page.wait_for_timeout(20)


@pytest.fixture(scope="module")
def comparison(browser, tmp_path_factory):
    root = tmp_path_factory.mktemp("bench")
    write_bench(root, {"adaptive": 100, "fixed:16": 60, "fixed:64": 95}, seeds=4, lines=30)
    visit = Visit(browser, write_report([root], root / "report.html"))
    yield visit
    visit.page.context.close()


@pytest.fixture(scope="module")
def hostile(browser, tmp_path_factory):
    root = tmp_path_factory.mktemp("bench")
    for number, name in enumerate(HOSTILE):
        plain = name.replace("/", "∕")
        for seed in (1, 2):
            folder = root / "runs" / plain / f"v{number}" / f"seed-{seed}"
            write_run(folder, label=name, env=HOSTILE[0], seed=seed, signal=name, network=name, epochs=name, lines=20)
    write_run(root / "runs" / "e" / "v" / "seed-1", status="failed", label=HOSTILE[0], env=HOSTILE[1], lines=20)
    (root / "logs").mkdir()
    (root / "logs" / "e_v_seed-1.log").write_text("".join(HOSTILE))
    visit = Visit(browser, write_report([root], root / "report.html", title=HOSTILE[1]))
    yield visit
    visit.page.context.close()


@pytest.fixture(scope="module")
def one_run(browser, tmp_path_factory):
    root = tmp_path_factory.mktemp("run")
    visit = Visit(browser, write_report([write_run(root / "run", lines=30)], root / "report.html"))
    yield visit
    visit.page.context.close()


@pytest.fixture(scope="module")
def mixed(browser, tmp_path_factory):
    root = tmp_path_factory.mktemp("mixed")
    write_bench(root / "env", {"adaptive": 100, "fixed:16": 80}, envs=("CartPole-v1",), seeds=2, lines=30)
    write_llm_variants(root / "llm", {"ess adaptive": 0.7, "fixed:16": 0.5}, seeds=2, lines=30)
    visit = Visit(browser, write_report([root], root / "report.html"))
    yield visit
    visit.page.context.close()


@pytest.fixture(params=["comparison", "hostile", "one_run", "mixed"])
def visit(request):
    return request.getfixturevalue(request.param)


def test_the_page_asks_for_nothing_and_complains_about_nothing(visit):
    assert [url for url in visit.requests if not url.startswith(("data:", "blob:"))] == [visit.page.url]
    assert visit.complaints == []


def test_every_plot_is_drawn(visit):
    shown = visit.page.evaluate("[...document.querySelectorAll('.plot')].filter(p => p.offsetParent).length")
    marks = visit.plots("plot.querySelectorAll('.plot-container path').length")
    assert len(marks) == shown > 0
    assert all(count > 0 for count in marks)


def test_curves_are_paths_of_svg(comparison):
    curves = comparison.page.locator("#curves .scatterlayer path.js-line")
    assert curves.count() >= 2 * 3
    assert "L" in curves.first.get_attribute("d")


def test_hovering_a_curve_shows_its_values(comparison):
    plot = comparison.page.locator("#curves .plot").first
    plot.scroll_into_view_if_needed()
    box = plot.locator(".nsewdrag").first.bounding_box()
    comparison.page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + box["height"] * 0.5)
    label = comparison.page.locator("#curves .hoverlayer")
    comparison.wait_until("document.querySelector('#curves .hoverlayer').textContent.includes('[')")
    assert "fixed:16" in label.first.text_content()


def test_a_variant_is_toggled_in_all_plots_at_once_by_the_keyboard(comparison):
    colour = "trace => JSON.stringify([trace.line, trace.marker]).includes('213,94,0')"  # of the second variant
    count = f"plot.data.filter({colour}).length"
    before, others = comparison.plots(count), comparison.plots("plot.data.length")
    box = comparison.page.get_by_role("checkbox", name="fixed:16")
    assert sum(before) > 5
    box.focus()
    comparison.page.keyboard.press("Space")
    comparison.wait_until(f"!{PLOTS}.some(plot => {count})")
    assert sum(comparison.plots("plot.data.length")) < sum(others)
    comparison.page.keyboard.press("Space")
    comparison.wait_until(f"{PLOTS}.reduce((sum, plot) => sum + {count}, 0) === {sum(before)}")


def test_the_x_axis_can_be_switched(comparison):
    comparison.page.locator("#curves .plot").first.scroll_into_view_if_needed()
    title = comparison.page.locator("#curves .plot").first.locator(".xtitle")
    assert title.text_content() == "env steps"
    for choice, shown in (("gradient steps", "gradient steps"), ("wall-clock", "wall-clock (seconds)")):
        comparison.page.locator(".switch").get_by_text(choice).click()
        assert title.text_content() == shown
    ends = comparison.page.evaluate("document.querySelector('#curves .plot').data.at(-1).dx * 119")
    assert 30 < ends < 41
    comparison.page.locator(".switch").get_by_text("env steps").click()


def test_the_x_axis_is_switched_in_the_words_of_each_plot(mixed):
    titles = mixed.page.locator("#curves .xtitle")
    for choice, shown in (
        ("env steps or completions", ["env steps", "completions"]),
        ("gradient steps", ["gradient steps", "optimizer steps"]),
    ):
        mixed.page.locator(".switch").get_by_text(choice).click()
        mixed.page.locator("#curves .plot").first.scroll_into_view_if_needed()
        assert titles.all_text_contents() == shown


def test_the_baseline_can_be_chosen(comparison):
    shown = (
        "[...document.querySelectorAll('#improvement figcaption')].filter(c => c.offsetParent).map(c => c.textContent)"
    )
    assert comparison.page.evaluate(shown) == ["adaptive against fixed:16"]
    comparison.page.locator("#baseline").select_option(label="fixed:64")
    assert comparison.page.evaluate(shown) == ["adaptive against fixed:64"]
    comparison.page.locator("#improvement [data-choice='1']").scroll_into_view_if_needed()
    comparison.page.wait_for_selector("#improvement [data-choice='1'] .main-svg")


def test_hostile_names_run_nothing_and_are_shown_as_they_are(hostile):
    page = hostile.page
    plot = page.locator("#curves .plot").nth(1)  # of the env that all four variants ran on
    plot.scroll_into_view_if_needed()
    box = plot.locator(".nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.5)
    hovers = "[...document.querySelectorAll('#curves .hoverlayer')].map(layer => layer.textContent).join()"
    hostile.wait_until(f"{hovers}.includes('[')")
    assert "%{x} %{customdata[0]}" in page.evaluate(hovers)
    assert page.evaluate("document.canary") is None
    assert page.evaluate("document.querySelectorAll('img, main a:not([href^=\"#\"])').length") == 0
    assert page.evaluate("document.scripts.length") == 3
    for name in HOSTILE:
        assert page.get_by_text(name).first.is_visible()
    assert page.locator("#aggregate .ytick").first.text_content() in "".join(HOSTILE)


def test_dark_and_light_follow_the_system_and_the_button(comparison):
    page = comparison.page
    lightness = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number).reduce((a, b) => a + b)"
    tick = "getComputedStyle(document.querySelector('#curves .xtick text')).fill"
    light, dark_text = page.evaluate(lightness), page.evaluate(tick)
    page.emulate_media(color_scheme="dark")
    comparison.wait_until(f"{tick} !== '{dark_text}'")
    assert light > 700 and page.evaluate(lightness) < 150
    page.get_by_role("button", name="Switch between light and dark").click()
    comparison.wait_until(f"{tick} === '{dark_text}'")
    assert page.evaluate(lightness) == light
    page.emulate_media(color_scheme="light")


def test_a_phone_needs_no_sideways_scrolling(visit):
    visit.page.set_viewport_size({"width": 375, "height": 800})
    visit.wait_until(f"{PLOTS}.every(plot => plot._fullLayout.width <= 375)")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 375
    visit.page.set_viewport_size({"width": 1100, "height": 800})


def test_printing_draws_everything_in_light(comparison):
    page = comparison.page
    page.emulate_media(color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("[...document.querySelectorAll('.plot')].every(p => p.data || !p.offsetParent)")
    assert max(comparison.plots("plot._fullLayout.width")) <= 690
    assert set(comparison.plots("plot._fullLayout.font.color")) == {"rgba(28,33,38,1)"}
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(color_scheme="light")
    assert comparison.complaints == []


def test_one_run_shows_its_facts_without_a_legend(one_run):
    assert one_run.page.get_by_text("pqn adaptive on CartPole-v1 reached 100 after 100,000 env steps").is_visible()
    assert one_run.page.locator(".toolbar").count() == 0
    assert one_run.page.locator("#curves .scatterlayer path.js-line").count() == 1
