// Draws the charts of a view from the figures of the last hour or day.
(() => {
  "use strict";
  const HEIGHT = 170;
  const COLOURS = ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5", "--line-6", "--line-7", "--line-8"];
  const drawn = new Map();
  let period = localStorage.getItem("tailwater-period") === "day" ? "day" : "hour";

  const plain = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(value === 0 ? 0 : 2));
  function scaled(value, base, units) {
    let index = 0;
    while (Math.abs(value) >= base && index < units.length - 1) { value /= base; index += 1; }
    return plain(value) + units[index];
  }
  const bytes = (value) => scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]);
  const formats = {
    bytes,
    byte_rate: (value) => bytes(value) + "/s",
    rate: (value) => scaled(value, 1000, ["", " k", " M", " G"]) + "/s",
    seconds: (value) => plain(value) + " s",
    duration: (value) => (value >= 1 ? plain(value) + " s" : scaled(value * 1e6, 1000, [" µs", " ms"])),
    count: (value) => scaled(value, 1000, ["", " k", " M", " G"]),
  };

  // Steps of an axis of bytes: 1, 2, 4 KiB and so on.
  const powers = Array.from({ length: 50 }, (_, power) => 2 ** power);

  // The colour that a custom property has now, with light-dark() resolved.
  function colour(name) {
    const probe = document.createElement("span");
    probe.className = "colour-probe";
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  }

  function options(figure, lines, format, width) {
    const [ink, rule] = [colour("--soft"), colour("--rule")];
    const font = "11px system-ui, sans-serif";
    return {
      width, height: HEIGHT, legend: { show: false }, cursor: { y: false, points: { size: 6 } },
      scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.15 : 1] } },
      axes: [
        { stroke: ink, font, grid: { stroke: rule, width: 1 }, ticks: { stroke: rule, width: 1, size: 4 }, values: "{HH}:{mm}", space: 60, size: 26 },
        { stroke: ink, font, size: 74, grid: { stroke: rule, width: 1 }, ticks: { show: false }, space: 30, incrs: figure.dataset.unit.startsWith("byte") ? powers : undefined, values: (_, all) => all.map((value) => format(value)) },
      ],
      series: [{}].concat(lines.map((line, index) => ({
        label: line.label, stroke: colour(COLOURS[index]), width: 1.6,
        fill: lines.length === 1 ? colour("--line-1-fill") : undefined, points: { show: false }, spanGaps: false,
      }))),
      hooks: { setCursor: [(plot) => legend(figure, plot, format, plot.cursor.idx)] },
    };
  }

  // The values at the pointer, or else the newest ones: as text, for everyone.
  function legend(figure, plot, format, at) {
    const list = figure.querySelector(".legend");
    const times = plot.data[0];
    const items = plot.series.slice(1).map((series, index) => {
      const values = plot.data[index + 1];
      let place = at;
      if (place === null || place === undefined) {
        place = values.length - 1;
        while (place > 0 && values[place] === null) place -= 1;
      }
      const value = values[place];
      const known = values.filter((one) => one !== null);
      const item = document.createElement("li");
      const mark = document.createElement("span");
      mark.className = `mark mark-${index + 1}`;
      item.append(mark, `${series.label} ${value === null || value === undefined ? "–" : format(value)}`);
      if (known.length && (at === null || at === undefined)) {
        const most = document.createElement("span");
        most.className = "soft";
        most.textContent = ` max ${format(Math.max(...known))}`;
        item.append(most);
      }
      return item;
    });
    if (at !== null && at !== undefined && times[at]) {
      const time = document.createElement("li");
      time.className = "soft";
      time.textContent = new Date(times[at] * 1000).toLocaleTimeString();
      items.push(time);
    }
    list.replaceChildren(...items);
    if (at === null || at === undefined) {
      const said = items.map((item) => item.textContent).join(", ") || "no figures yet";
      figure.querySelector(".plot").setAttribute("aria-label", `${figure.dataset.title}, last ${period}: ${said}`);
    }
  }

  async function draw(figure) {
    const lines = JSON.parse(figure.dataset.lines);
    const query = new URLSearchParams({ lines: lines.map((line) => line.query).join("|"), period });
    const response = await fetch(`/charts?${query}`, { headers: { Accept: "application/json" } });
    if (!response.ok || !figure.isConnected) return;
    const points = await response.json();
    const box = figure.querySelector(".plot");
    const format = formats[figure.dataset.unit];
    const data = [points.times, ...points.lines];
    // Without figures at both ends, the axis still covers the whole period.
    if (!data[0].length || data[0][0] > points.from) { data[0].unshift(points.from); data.slice(1).forEach((line) => line.unshift(null)); }
    if (data[0][data[0].length - 1] < points.to) { data[0].push(points.to); data.slice(1).forEach((line) => line.push(null)); }
    const style = document.documentElement.dataset.theme + String(matchMedia("(prefers-color-scheme: dark)").matches) + box.clientWidth;
    let known = drawn.get(figure);
    if (known && known.style !== style) { known.plot.destroy(); known = undefined; }
    if (known) {
      known.plot.setData(data);
    } else {
      known = { style, plot: new uPlot(options(figure, lines, format, Math.max(box.clientWidth, 200)), data, box) };
      drawn.set(figure, known);
    }
    if (known.plot.cursor.idx === null || known.plot.cursor.idx === undefined) legend(figure, known.plot, format, null);
  }

  function drawAll() {
    for (const figure of drawn.keys()) {
      if (!figure.isConnected) { drawn.get(figure).plot.destroy(); drawn.delete(figure); }
    }
    for (const input of document.querySelectorAll("#period input")) input.checked = input.value === period;
    // A chart that cannot be drawn now is drawn with the next update.
    document.querySelectorAll("figure.chart").forEach((figure) => draw(figure).catch(() => {}));
  }

  document.addEventListener("change", (event) => {
    if (event.target.name !== "period") return;
    period = event.target.value;
    localStorage.setItem("tailwater-period", period);
    drawAll();
  });
  document.addEventListener("tailwater:charts", drawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  let resizing = 0;
  addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(drawAll, 150); });
  drawAll();
})();
