// Draws the figures of the page as they scroll into view, and redraws them when a variant, the x axis or the theme changes.
"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const hiddenVariants = new Set();
  const drawn = new Set();
  const inView = new Set();
  const stale = new Set();
  const touch = matchMedia("(pointer: coarse)").matches;
  let axis = "clock";
  let printing = false;

  // Colours are names in the data: "@v0", or "@v0/0.15" with an opacity.
  const COLOUR = /^@([a-z]+\d*)(?:\/([\d.]+))?$/;
  const COLOUR_KEYS = new Set(["color", "fillcolor", "zerolinecolor"]);

  const probe = document.body.appendChild(document.createElement("i"));
  probe.hidden = true;

  function themeColour(name) {
    const match = COLOUR.exec(name);
    if (!match) return name;
    probe.style.color = `var(--${match[1]})`;
    const [r, g, b] = getComputedStyle(probe).color.match(/\d+/g);
    return `rgba(${r},${g},${b},${match[2] || 1})`;
  }

  function coloured(value, key) {
    if (Array.isArray(value)) return typeof value[0] === "object" ? value.map((entry) => coloured(entry, key)) : value;
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, entry]) => [name, coloured(entry, name)]));
    }
    return typeof value === "string" && COLOUR_KEYS.has(key) ? themeColour(value) : value;
  }

  function shown(entry) {
    return !(entry.variant !== null && hiddenVariants.has(entry.variant)) && (entry.axis === null || entry.axis === axis);
  }

  function tracesOf(entry) {
    const trace = coloured(entry.trace);
    if (!entry.band) {
      if (!trace.hovertemplate) trace.hovertemplate = "%{y:.4~g}<extra>" + trace.name + "</extra>";
      return [trace];
    }
    const { low, high, fill } = entry.band;
    const edge = { type: "scatter", mode: "lines", x0: trace.x0, dx: trace.dx, hoverinfo: "skip", line: { width: 0 }, showlegend: false };
    trace.customdata = low.map((value, at) => [value, high[at]]);
    trace.hovertemplate = "%{y:.4~g} [%{customdata[0]:.4~g}, %{customdata[1]:.4~g}]<extra>" + trace.name + "</extra>";
    return [{ ...edge, y: low }, { ...edge, y: high, fill: "tonexty", fillcolor: themeColour(fill) }, trace];
  }

  function once(traces) {
    const seen = new Set();
    for (const trace of traces) {
      if (!trace.legendgroup) continue;
      trace.showlegend = !seen.has(trace.legendgroup);
      seen.add(trace.legendgroup);
    }
    return traces;
  }

  function axisStyle(given) {
    const line = themeColour("@line");
    const style = { gridcolor: line, linecolor: line, zerolinecolor: line, tickcolor: line, automargin: true, fixedrange: false };
    const title = { standoff: 6, ...(given.title || {}), font: { size: 12, color: themeColour("@muted") } };
    return { ...style, ...given, title };
  }

  function layoutOf(figure, element) {
    const { axis_titles: titles, ...given } = coloured(figure.layout);
    const text = themeColour("@text");
    const xaxis = titles ? { title: { text: titles[axis] }, hoverformat: axis === "wall_seconds" ? ".3~g" : ",.0f" } : given.xaxis || {};
    return {
      ...given,
      height: figure.height,
      width: element.clientWidth,
      margin: { l: 8, r: 12, t: 8, b: 8, pad: 2 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: text },
      hoverlabel: { bgcolor: themeColour("@raised"), bordercolor: themeColour("@line"), font: { color: text, size: 12 }, namelength: 40 },
      xaxis: axisStyle(xaxis),
      yaxis: axisStyle(given.yaxis || {}),
      showlegend: given.showlegend || false,
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, traceorder: "normal" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: themeColour("@muted"), activecolor: text },
      // A finger that scrolls the page must not zoom a plot.
      dragmode: touch ? false : "zoom",
    };
  }

  // Where nothing hovers, the buttons of a plot would lie over the ends of its curves for good.
  const CONFIG = {
    displaylogo: false,
    responsive: false,
    displayModeBar: touch ? false : "hover",
    modeBarButtons: [["toImage", "resetScale2d"]], // none that would send anything anywhere
  };

  const figureOf = (element) => figures[Number(element.dataset.figure)];

  function draw(element) {
    if (element.offsetParent === null) return;
    const figure = figureOf(element);
    const traces = once(figure.entries.filter(shown).flatMap(tracesOf));
    drawn.add(element);
    stale.delete(element);
    Plotly.react(element, traces, layoutOf(figure, element), CONFIG);
  }

  // What the reader sees changes at once, the rest when there is time or when it comes into view.
  function redraw(concerned = () => true) {
    drawn.forEach((element) => concerned(figureOf(element)) && stale.add(element));
    [...stale].filter((element) => inView.has(element)).forEach(draw);
    catchUp();
  }

  let catchingUp = false;
  function catchUp() {
    const next = [...stale].find((element) => element.offsetParent !== null);
    if (catchingUp || printing || !next) return;
    catchingUp = true;
    setTimeout(() => {
      catchingUp = false;
      if (stale.has(next)) draw(next);
      catchUp();
    });
  }

  function look(entries) {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) inView.delete(target);
      else if (inView.add(target) && (stale.has(target) || !drawn.has(target))) draw(target);
    }
  }

  const plots = [...document.querySelectorAll(".plot")];
  for (const element of plots) element.style.minHeight = figureOf(element).height + "px";
  const observer = new IntersectionObserver(look, { rootMargin: "400px 0px" });
  plots.forEach((element) => observer.observe(element));

  for (const box of document.querySelectorAll("input[data-variant]")) {
    box.addEventListener("change", () => {
      const variant = Number(box.dataset.variant);
      if (box.checked) hiddenVariants.delete(variant);
      else hiddenVariants.add(variant);
      redraw();
    });
  }
  for (const choice of document.querySelectorAll("input[name=axis]")) {
    choice.addEventListener("change", () => {
      axis = choice.value;
      redraw((figure) => figure.layout.axis_titles);
    });
  }
  for (const select of document.querySelectorAll("select[data-chooses]")) {
    const choose = () => {
      for (const part of document.querySelectorAll(`[data-choice-of="${select.dataset.chooses}"]`)) {
        part.hidden = part.dataset.choice !== select.value;
      }
    };
    select.addEventListener("change", choose);
    choose();
  }

  const themeButton = document.getElementById("theme");
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches);
  function nameTheButton() {
    themeButton.querySelector("span").textContent = isDark() ? "Light" : "Dark";
  }
  themeButton.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    nameTheButton();
    redraw();
  });
  systemDark.addEventListener("change", () => {
    nameTheButton();
    redraw();
  });
  nameTheButton();

  let width = innerWidth;
  let waiting = 0;
  addEventListener("resize", () => {
    if (printing || innerWidth === width) return; // a phone's address bar changes only the height
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(() => redraw(), 150);
  });

  // On paper everything is drawn, light and as wide as the page, whatever the screen shows.
  let themeBefore;
  addEventListener("beforeprint", () => {
    printing = true;
    themeBefore = root.dataset.theme;
    root.dataset.theme = "light";
    root.classList.add("printing");
    plots.forEach(draw);
  });
  addEventListener("afterprint", () => {
    printing = false;
    root.classList.remove("printing");
    if (themeBefore === undefined) delete root.dataset.theme;
    else root.dataset.theme = themeBefore;
    redraw();
  });
})();
