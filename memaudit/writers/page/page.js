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
  // ECharts knows series by keys: s0, s1 …; what they are called is only shown.
  function called(view, p) { return view.names[Number(p.seriesName.slice(1))]; }
  function tip(view) {
    return function (params) {
      var many = Array.isArray(params), box = document.createElement("div");
      var list = (many ? params : [params]).filter(function (p) { return String(p.seriesId).indexOf("aux") !== 0 && p.value; });
      if (!list.length) { return ""; }
      if (!many) {
        box.appendChild(line("tip-head", [list[0].data.tip || called(view, list[0])], list[0].color));
        view.tip.forEach(function (name, k) {
          if (list[0].value[k] != null) { box.appendChild(line("tip-row", [name, short(list[0].value[k])])); }
        });
        return box;
      }
      list.sort(function (a, b) { return b.value[1] - a.value[1]; });
      box.appendChild(line("tip-head", [view.tip[0] + " " + short(list[0].value[0])]));
      list.slice(0, 10).forEach(function (p) { box.appendChild(line("tip-row", [called(view, p), short(p.value[1])], p.color)); });
      if (list.length > 10) { box.appendChild(line("tip-more", ["and " + (list.length - 10) + " more"])); }
      return box;
    };
  }

  function option(item) {
    var view = item.view, colour = palette(), made = painted(view.option, "", colour);
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
    if (view.log && item.log) {
      Object.assign(made.xAxis, { type: "log", min: view.log[0], max: view.log[1] });
      made.series.forEach(function (s) { s.data = (s.data || []).filter(function (p) { return (p.value || p)[0] > 0; }); });
    }
    made.legend = { show: false, data: made.series.map(function (s) { return s.name; }), selected: item.selected };
    return made;
  }
  // Names beside points: wherever no other name and no point is, and where the fewest lines go through; or none.
  var SIDES = [[1, 0], [-1, 0], [0, -1], [0, 1], [1, -1], [1, 1], [-1, -1], [-1, 1]];
  function beside(at, wide, side) {
    var x = side[0] ? at[0] + side[0] * (side[1] ? 4 : 9) - (side[0] < 0 ? wide : 0) : at[0] - wide / 2;
    var y = at[1] - 8 + side[1] * 15;
    return [x, y, x + wide, y + 16];
  }
  function meet(a, b) { return a[0] < b[2] && a[2] > b[0] && a[1] < b[3] && a[3] > b[1]; }
  // Small boxes all along the lines of a chart, so that what they go through can be counted.
  function along(chart, series) {
    var found = [];
    series.filter(function (s) { return s.type === "line" && s.data.length; }).forEach(function (s) {
      var last = null;
      s.data.forEach(function (point) {
        var to = point[1] == null ? null : chart.convertToPixel({ seriesId: s.id }, point);
        var count = last && to ? Math.min(400, Math.ceil(Math.hypot(to[0] - last[0], to[1] - last[1]) / 4)) : 0;
        for (var k = 1; k <= count; k += 1) {
          var x = last[0] + (to[0] - last[0]) * k / count, y = last[1] + (to[1] - last[1]) * k / count;
          found.push([x - 2, y - 2, x + 2, y + 2]);
        }
        last = to;
      });
    });
    return found;
  }
  function label(item) {
    var chart = item.chart, all = chart.getOption().series, size = [chart.getWidth(), chart.getHeight()];
    all.forEach(function (series) {
      if (!series.label || !series.label.show) { return; }
      var places = series.data.map(function (point) { return chart.convertToPixel({ seriesId: series.id }, point.value); });
      var taken = places.map(function (at) { return [at[0] - 6, at[1] - 6, at[0] + 6, at[1] + 6]; }), lines = along(chart, all);
      var data = series.data.map(function (point, k) {
        var at = places[k], best = null, least = Infinity;
        SIDES.forEach(function (side) {
          var box = beside(at, 6.4 * point.name.length, side), crossed;
          if (box[0] < 60 || box[2] > size[0] - 14 || box[1] < 8 || box[3] > size[1] - 44) { return; }
          if (taken.some(function (other, place) { return place !== k && meet(box, other); })) { return; }
          crossed = lines.filter(function (other) { return meet(box, other); }).length;
          if (crossed < least) { best = box; least = crossed; }
        });
        if (!best) { return Object.assign({}, point, { label: { show: false } }); }
        taken.push(best);
        // Counted from the upper left corner of the sign, which has twelve pixels.
        var from = [best[0] - at[0] + 6, best[1] - at[1] + 8];
        return Object.assign({}, point, { label: { show: true, position: from, align: "left", verticalAlign: "top" } });
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
  // What is looked at: the ends of both axes, as powers of ten where an axis is logarithmic.
  // Zooms of ECharts count in shares of the numbers, which on such an axis all lie at its lower end.
  function ends(axis) { return [axis.min, axis.max].map(function (v) { return axis.type === "log" ? Math.log10(v) : v; }); }
  function zoom(item, change) {
    var near = false, next = {};
    Object.keys(item.whole).forEach(function (name) {
      var whole = item.whole[name], now = item.looked[name] || whole, size = whole[1] - whole[0];
      var made = change(now[0], now[1], name), width = Math.max(Math.min(made[1] - made[0], size), size * 1e-6);
      var first = Math.max(whole[0], Math.min(whole[1] - width, made[0]));
      next[name] = [first, first + width];
      near = near || width < size * (1 - 1e-9);
    });
    look(item, near ? next : {});
  }
  function look(item, windows) {
    var made = {}, scale = function (v) { return v; };
    item.looked = windows;
    Object.keys(item.whole).forEach(function (name) {
      var axis = item.axes[name], log = axis.type === "log", window = windows[name];
      var shown = window ? window.map(log ? function (v) { return Math.pow(10, v); } : scale) : [axis.min, axis.max];
      var values = window ? rounds(shown[0], shown[1], log) : null, given = axis.axisLabel;
      made[name] = { min: shown[0], max: shown[1], axisTick: { customValues: values }, axisLabel: { customValues: values,
        showMinLabel: window ? true : given.showMinLabel, showMaxLabel: window ? true : given.showMaxLabel } };
    });
    item.chart.setOption(made);
    label(item);
    // No tooltip of what was there before stays behind.
    item.chart.dispatchAction({ type: "hideTip" });
    item.chart.dispatchAction({ type: "updateAxisPointer", currTrigger: "leave" });
    all(".reset", item.plot.parentNode).forEach(function (button) { button.hidden = !Object.keys(windows).length; });
  }
  // Where a point of the plot lies between the ends of each axis, from 0 to 1.
  function shares(item, at) {
    var box = item.chart.getModel().getComponent("grid").coordinateSystem.getRect();
    var found = { xAxis: (at[0] - box.x) / box.width, yAxis: 1 - (at[1] - box.y) / box.height };
    Object.keys(found).forEach(function (name) { found[name] = Math.max(0, Math.min(1, found[name])); });
    return found;
  }
  // A rectangle was drawn: what it encloses is seen, and the zoom of ECharts, whose ends are rounded, is undone.
  function dragged(item, event) {
    if (item.busy || !item.from || !item.to) { return; }
    var one = shares(item, item.from), other = shares(item, item.to), flat = {};
    flat.xAxis = Math.abs(item.from[0] - item.to[0]) < 4;
    flat.yAxis = Math.abs(item.from[1] - item.to[1]) < 4;
    item.busy = true;
    item.chart.dispatchAction({ type: "dataZoom", batch: (event.batch || [event]).map(function (part) {
      return { dataZoomId: part.dataZoomId, start: 0, end: 100 };
    }) });
    item.busy = false;
    zoom(item, function (a, b, name) {
      var ends = [one[name], other[name]].sort(function (x, y) { return x - y; });
      return flat[name] ? [a, b] : [a + (b - a) * ends[0], a + (b - a) * ends[1]];
    });
  }
  // By so much around a point of the plot: what is there stays there.
  function zoomAt(item, factor, x, y) {
    var share = shares(item, [x, y]);
    zoom(item, function (a, b, name) {
      var at = a + (b - a) * share[name];
      return [at + (a - at) * factor, at + (b - at) * factor];
    });
  }
  function draw(item) {
    var made = option(item);
    item.axes = { xAxis: made.xAxis, yAxis: made.yAxis };
    item.whole = {};
    ["xAxis", "yAxis"].forEach(function (name) {
      if (made[name].type !== "category") { item.whole[name] = ends(made[name]); }
    });
    item.chart.setOption(made, true);
    look(item, item.looked);
    // Dragging selects what is looked at; a finger scrolls the page instead.
    if (window.matchMedia("(pointer: fine)").matches) {
      item.chart.dispatchAction({ type: "takeGlobalCursor", key: "dataZoomSelect", dataZoomSelectActive: true });
    }
  }
  function afresh(item) { item.looked = {}; draw(item); }
  function whole(item) { look(item, {}); }
  function key(item, event) {
    var step = { ArrowLeft: -0.1, ArrowRight: 0.1 }[event.key];
    var grow = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) { return; }
    if (event.key === "0" || event.key === "Escape") { whole(item); }
    else if (step || grow) {
      zoom(item, function (a, b, name) {
        var half = (b - a) / 2 * (grow || 1), middle = (a + b) / 2 + (step && name === "xAxis" ? step * (b - a) : 0);
        return [middle - half, middle + half];
      });
    } else { return; }
    event.preventDefault();
  }

  function place(item, event) {
    var box = item.plot.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }
  // Where a rectangle begins and ends, which may be outside of the plot.
  function follow(item) {
    item.plot.addEventListener("mousedown", function (event) { item.from = place(item, event); item.to = null; }, true);
    ["mousemove", "mouseup"].forEach(function (kind) {
      window.addEventListener(kind, function (event) { if (item.from && (event.buttons || kind === "mouseup")) { item.to = place(item, event); } }, true);
    });
  }

  function start(figure) {
    var plot = figure.querySelector(".plot");
    var view = JSON.parse(figure.querySelector("script.view").textContent);
    var item = { view: view, log: figure.dataset.scale === "log", selected: {}, looked: {}, plot: plot };
    view.off.forEach(function (name) { item.selected[name] = false; });
    item.chart = window.echarts.init(plot, null, { renderer: "svg" });
    all(".keys", figure).forEach(function (keys) {
      keys.addEventListener("click", function (event) {
        var button = event.target.closest("button");
        if (!button) { return; }
        var chosen = button.dataset.all ? all("button[data-name]", keys) : [button];
        chosen.forEach(function (b) {
          var on = button.dataset.all ? button.dataset.all === "on" : b.getAttribute("aria-pressed") !== "true";
          b.setAttribute("aria-pressed", String(on));
          item.selected[b.dataset.name] = on;
          item.chart.dispatchAction({ type: on ? "legendSelect" : "legendUnSelect", name: b.dataset.name });
        });
      });
    });
    all(".reset", figure).forEach(function (button) { button.addEventListener("click", function () { whole(item); }); });
    plot.addEventListener("keydown", function (event) { key(item, event); });
    plot.addEventListener("dblclick", function () { whole(item); });
    plot.addEventListener("wheel", function (event) {
      if (!event.ctrlKey) { return; }
      event.preventDefault();
      var at = place(item, event);
      zoomAt(item, Math.exp(Math.max(-50, Math.min(50, event.deltaY)) / 200), at[0], at[1]);
    }, { passive: false });
    item.chart.getZr().on("pinch", function (event) {
      event.event.preventDefault();
      zoomAt(item, 1 / event.pinchScale, event.pinchX, event.pinchY);
    });
    follow(item);
    draw(item);
    item.chart.on("datazoom", function (event) { dragged(item, event); });
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
        if (field.closest("section").contains(item.plot)) { item.log = event.target.value === "log"; afresh(item); }
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
