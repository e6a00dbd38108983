// Draws the figures of a memaudit page, and makes its switches work. Everything is in the page.
(function () {
  "use strict";
  var root = document.documentElement, charts = [], printing = false;
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  var DIGITS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

  function all(selector, inside) { return Array.from((inside || document).querySelectorAll(selector)); }
  function mode() { return printing ? "light" : root.dataset.theme || (dark.matches ? "dark" : "light"); }

  // Colours have names in the figures; what they are stands in the style sheet, once per theme.
  function palette() {
    var probe = document.getElementById("palette"), found = {};
    probe.dataset.theme = mode();
    var style = getComputedStyle(probe);
    return function (name) { return found[name] || (found[name] = style.getPropertyValue("--" + name).trim()); };
  }
  function power(value) {
    var exponent = Math.log10(value);
    if (Math.abs(exponent - Math.round(exponent)) > 1e-9) { return short(value); }
    return "10" + String(Math.round(exponent)).replace("-", "⁻").replace(/\d/g, function (d) { return DIGITS[d]; });
  }
  function short(value) {
    if (typeof value !== "number") { return String(value); }
    var size = Math.abs(value);
    if (size >= 1e5 || (size > 0 && size < 1e-3)) { return value.toExponential(3).replace(/\.?0+e/, "e"); }
    return String(Number(value.toPrecision(5)));
  }
  var FORMATS = { power: power, short: short, name: function (p) { return p.name; } };

  function painted(value, key, colour) {
    if (Array.isArray(value)) {
      return value.length && typeof value[0] === "number" ? value : value.map(function (v) { return painted(v, key, colour); });
    }
    if (value && typeof value === "object") {
      var made = {};
      Object.keys(value).forEach(function (k) { made[k] = painted(value[k], k, colour); });
      return made;
    }
    if (typeof value === "string") {
      if (/color$/i.test(key) && value[0] === "$") { return colour(value.slice(1)); }
      if (key === "formatter") { return FORMATS[value]; }
    }
    return value;
  }

  // Tooltips are made of text nodes: whatever a layer is called, it is shown, never run.
  function line(kind, words, colour) {
    var made = document.createElement("div");
    made.className = kind;
    if (colour) {
      var spot = made.appendChild(document.createElement("i"));
      spot.style.background = colour;
    }
    words.forEach(function (word) { made.appendChild(document.createElement("span")).textContent = word; });
    return made;
  }
  function tip(view) {
    return function (params) {
      var many = Array.isArray(params), box = document.createElement("div");
      var list = (many ? params : [params]).filter(function (p) { return String(p.seriesId).indexOf("aux") !== 0 && p.value; });
      if (!list.length) { return ""; }
      if (!many) {
        box.appendChild(line("tip-head", [list[0].data.told || list[0].seriesName], list[0].color));
        view.tip.forEach(function (name, k) {
          if (list[0].value[k] != null) { box.appendChild(line("tip-row", [name, short(list[0].value[k])])); }
        });
        return box;
      }
      list.sort(function (a, b) { return b.value[1] - a.value[1]; });
      box.appendChild(line("tip-head", [view.tip[0] + " " + short(list[0].value[0])]));
      list.slice(0, 10).forEach(function (p) { box.appendChild(line("tip-row", [p.seriesName, short(p.value[1])], p.color)); });
      if (list.length > 10) { box.appendChild(line("tip-more", ["and " + (list.length - 10) + " more"])); }
      return box;
    };
  }

  function option(item) {
    var view = item.views[item.view], colour = palette(), made = painted(view.option, "", colour);
    made.textStyle = { fontFamily: getComputedStyle(document.body).fontFamily, color: colour("soft") };
    made.tooltip = Object.assign({ confine: true, transitionDuration: 0, className: "tip", backgroundColor: colour("raised"),
      borderColor: colour("rule"), textStyle: { color: colour("ink"), fontSize: 12 } }, made.tooltip, { formatter: tip(view) });
    ["xAxis", "yAxis"].forEach(function (name) {
      var axis = made[name];
      axis.axisLabel = Object.assign({ color: colour("soft"), fontSize: 11 }, axis.axisLabel);
      axis.nameTextStyle = { color: colour("soft"), fontSize: 12 };
      axis.axisLine = { show: true, onZero: false, lineStyle: { color: colour("rule") } };
      axis.axisTick = { show: false };
      axis.splitLine = { show: axis.type !== "category" && name === "yAxis" || !!view.grid, lineStyle: { color: colour("grid") } };
    });
    if (view.lag && item.log) {
      made.xAxis.type = "log";
      made.xAxis.min = 1;
      made.series.forEach(function (s) { s.data = (s.data || []).filter(function (p) { return p[0] >= 1; }); });
    }
    made.legend = { show: false, data: made.series.map(function (s) { return s.name; }), selected: item.selected[item.view] };
    return made;
  }
  // Names beside points: to the right, left, above or below, wherever there is room, or none.
  function label(item) {
    var chart = item.chart, taken = [], size = [chart.getWidth(), chart.getHeight()];
    chart.getOption().series.forEach(function (series) {
      if (!series.label || !series.label.show) { return; }
      var data = series.data.map(function (point) {
        var at = chart.convertToPixel({ seriesId: series.id }, point.value), w = 6.2 * point.name.length, box;
        var boxes = { right: [at[0] + 9, at[1] - 8], left: [at[0] - 9 - w, at[1] - 8], top: [at[0] - w / 2, at[1] - 24], bottom: [at[0] - w / 2, at[1] + 8] };
        var free = Object.keys(boxes).find(function (side) {
          box = [boxes[side][0], boxes[side][1], boxes[side][0] + w, boxes[side][1] + 16];
          return box[0] > 58 && box[2] < size[0] - 14 && box[1] > 8 && box[3] < size[1] - 44 && taken.every(function (t) {
            return box[0] > t[2] || box[2] < t[0] || box[1] > t[3] || box[3] < t[1];
          });
        });
        taken.push([at[0] - 6, at[1] - 6, at[0] + 6, at[1] + 6]);
        if (free) { taken.push(box); }
        return Object.assign({}, point, { label: free ? { show: true, position: free } : { show: false } });
      });
      chart.setOption({ series: [{ id: series.id, data: data }] });
    });
  }
  // Round numbers between two others: powers of ten, 1 2 5 of each, or steps where both are near.
  function rounds(low, high, log) {
    var made = [], spread = log ? Math.log10(high / low) : 0, size, k;
    if (spread > 1) {
      var step = Math.max(1, Math.ceil(spread / 7)), parts = spread > 3 ? [1] : [1, 2, 5];
      for (k = Math.floor(Math.log10(low)); k <= Math.log10(high) + 1e-9; k += step) {
        parts.forEach(function (p) { made.push(Number(p + "e" + k)); });
      }
    } else {
      size = Math.pow(10, Math.floor(Math.log10((high - low) / 5)));
      size *= [1, 2, 5, 10].find(function (p) { return (high - low) / (p * size) <= 6; });
      for (k = Math.ceil(low / size); k <= high / size; k += 1) { made.push(Number((k * size).toPrecision(12))); }
    }
    return made.filter(function (v) { return v >= low && v <= high; });
  }
  // After a zoom: round labels, a way back, and no tooltip of what was there before.
  function settle(item) {
    var shown = item.chart.getOption(), near = shown.dataZoom.some(function (z) { return z.start > 0 || z.end < 100; }), made = {};
    ["xAxis", "yAxis"].forEach(function (name) {
      var axis = item.chart.getModel().getComponent(name).axis, log = axis.type === "log", ends = axis.scale.getExtent();
      if (axis.type === "category" || !(ends[1] > ends[0])) { return; }
      var values = near ? rounds(ends[0], ends[1], log) : null;
      var given = item.views[item.view].option[name].axisLabel, first = near || given.showMinLabel, last = near || given.showMaxLabel;
      made[name] = { axisLabel: { customValues: values, showMinLabel: first, showMaxLabel: last }, axisTick: { customValues: values } };
    });
    item.chart.setOption(made);
    item.chart.dispatchAction({ type: "hideTip" });
    item.chart.dispatchAction({ type: "updateAxisPointer", currTrigger: "leave" });
    all(".reset", item.plot.parentNode).forEach(function (button) { button.hidden = !near; });
  }
  function draw(item) {
    item.chart.setOption(option(item), true);
    label(item);
    settle(item);
    // Dragging selects what is looked at; a finger scrolls the page instead.
    if (window.matchMedia("(pointer: fine)").matches) {
      item.chart.dispatchAction({ type: "takeGlobalCursor", key: "dataZoomSelect", dataZoomSelectActive: true });
    }
  }
  function zoom(item, change) {
    item.chart.getOption().dataZoom.forEach(function (z, k) {
      var next = change(z.start, z.end, z.orient);
      item.chart.dispatchAction({ type: "dataZoom", dataZoomIndex: k, start: next[0], end: next[1] });
    });
  }
  function whole() { return [0, 100]; }
  function key(item, event) {
    var step = { ArrowLeft: -10, ArrowRight: 10 }[event.key];
    var grow = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) { return; }
    if (event.key === "0" || event.key === "Escape") { zoom(item, whole); }
    else if (step) {
      zoom(item, function (a, b, way) {
        var move = way === "vertical" ? 0 : step * (b - a) / 100;
        move = Math.max(-a, Math.min(100 - b, move));
        return [a + move, b + move];
      });
    } else if (grow) {
      zoom(item, function (a, b) {
        var half = Math.min(100, (b - a) * grow) / 2, middle = Math.max(half, Math.min(100 - half, (a + b) / 2));
        return [middle - half, middle + half];
      });
    } else { return; }
    event.preventDefault();
  }

  function start(figure) {
    var plot = figure.querySelector(".plot");
    var item = { view: 0, log: figure.dataset.scale === "log", selected: [], plot: plot };
    item.views = all("script.view", figure).map(function (s) { return JSON.parse(s.textContent); });
    item.views.forEach(function (v) { item.selected.push(v.selected || {}); });
    item.chart = window.echarts.init(plot, null, { renderer: "svg" });
    all(".keys", figure).forEach(function (keys, k) {
      keys.addEventListener("click", function (event) {
        var button = event.target.closest("button");
        if (!button) { return; }
        var chosen = button.dataset.all ? all("button[data-name]", keys) : [button];
        chosen.forEach(function (b) {
          var on = button.dataset.all ? button.dataset.all === "on" : b.getAttribute("aria-pressed") !== "true";
          b.setAttribute("aria-pressed", String(on));
          item.selected[k][b.dataset.name] = on;
          item.chart.dispatchAction({ type: on ? "legendSelect" : "legendUnSelect", name: b.dataset.name });
        });
      });
    });
    all("select", figure).forEach(function (select) {
      select.addEventListener("change", function () {
        item.view = select.selectedIndex;
        all(".keys", figure).forEach(function (keys, k) { keys.hidden = k !== item.view; });
        draw(item);
      });
    });
    all(".reset", figure).forEach(function (button) { button.addEventListener("click", function () { zoom(item, whole); }); });
    plot.addEventListener("keydown", function (event) { key(item, event); });
    plot.addEventListener("dblclick", function () { zoom(item, whole); });
    draw(item);
    item.chart.on("datazoom", function () { settle(item); });
    new ResizeObserver(function () { if (!printing) { item.chart.resize(); label(item); } }).observe(plot);
    figure.dataset.ready = "yes";
    charts.push(item);
    return item;
  }
  function redraw() { charts.forEach(draw); }
  // The page is laid out as on paper before it is printed: the plots have the sizes of their boxes.
  function print(on) {
    printing = on;
    if (on) { root.dataset.printing = "yes"; } else { delete root.dataset.printing; }
    charts.forEach(function (item) {
      item.chart.resize(on ? { width: item.plot.clientWidth, height: item.plot.clientHeight } : { width: "auto", height: "auto" });
    });
    redraw();
  }
  // What goes on beyond an edge fades out there.
  function edges(box) {
    function look() {
      var rest = box.scrollWidth - box.clientWidth - box.scrollLeft;
      box.dataset.more = (box.scrollLeft > 2 ? "left " : "") + (rest > 2 ? "right" : "");
    }
    box.addEventListener("scroll", look, { passive: true });
    new ResizeObserver(look).observe(box);
  }

  all("figure[data-chart]").forEach(start);
  all("nav ul, .scroll").forEach(edges);
  all("fieldset.scale").forEach(function (field) {
    field.addEventListener("change", function (event) {
      charts.forEach(function (item) {
        if (field.closest("section").contains(item.plot)) { item.log = event.target.value === "log"; draw(item); }
      });
    });
  });
  all("button.theme").forEach(function (button) {
    button.hidden = false;
    button.addEventListener("click", function () { root.dataset.theme = mode() === "dark" ? "light" : "dark"; redraw(); });
  });
  dark.addEventListener("change", redraw);
  window.addEventListener("beforeprint", function () { print(true); });
  window.addEventListener("afterprint", function () { print(false); });
  root.dataset.ready = "yes";
  window.memaudit = { charts: charts };
})();
