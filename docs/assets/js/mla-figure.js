// Sliders of the MLA figure. Formulas, rates and measured points come as data in the page: see
// generators/mla/figure.py, which draws the figure as it stands before a slider moves.
(function () {
  "use strict";

  function us(value) {
    return value < 1000 ? Number(value.toPrecision(3)) + " us"
      : Number((value / 1000).toPrecision(3)) + " ms";
  }

  function joules(value) {
    return value >= 1 ? Number(value.toPrecision(3)) + " J"
      : Number((value * 1000).toPrecision(3)) + " mJ";
  }

  function model(spec) {
    const compiled = Object.entries(spec.formulas).map(([key, parts]) => [key,
      [formula(parts.flops), formula(parts.bytes)]]);
    const powerOf = spec.power && formula(spec.power.us);
    return (key, sizes) => {
      const [flops, bytes] = new Map(compiled).get(key).map((part) => part(sizes));
      const tensor = flops / (spec.rates.tflops * 1e6);
      const memory = bytes / (spec.rates.gbps * 1e3);
      const found = { flops, bytes, tensor, memory, time: Math.max(tensor, memory) };
      if (!spec.power) return found;
      const cost = spec.power;
      const power = powerOf({ flops, bytes });
      const time = Math.max(found.time, power);
      const clock = Math.min(1, flops / (cost.tflops * 1e6) / time);
      const work = cost.flop * flops * clock ** 2 + cost.byte * bytes;
      const joules = Math.min(work + cost.static * time / 1e6, cost.watts * time / 1e6);
      return { ...found, power, time, joules };
    };
  }

  function place(chart, s, value) {
    const [low, high] = chart.decades;
    const x = chart.left +
      (chart.width - chart.left - 120) * Math.log2(s) / Math.log2(chart.s[chart.s.length - 1]);
    const share = Math.min(Math.max((Math.log10(value) - low) / (high - low), 0), 1);
    const tall = chart.height - chart.bottom;
    return [x, tall - (tall - 10) * share].map((part) => part.toFixed(1));
  }

  function message(times, sizes) {
    const pure = ["latent", "decompressed", "mixed"];
    const best = pure.reduce((one, other) => (times[other] < times[one] ? other : one));
    const others = pure.filter((key) => key !== best)
      .map((key) => (times[key] / times[best]).toFixed(1) + "x " + key).join(", ");
    return "At s = " + sizes.s + " the " + best + " form has the shortest reference time, " +
      us(times[best]) + ": " + others + " by the same rates.";
  }

  function marks(spec, sizes, root) {
    const group = root.querySelector("[data-marks]");
    group.replaceChildren(...spec.points
      .filter((point) => ["b", "h", "t"].every((axis) => point[axis] === sizes[axis]))
      .map((point) => {
        const mark = document.createElementNS("http://www.w3.org/2000/svg", "circle");
        const [x, y] = place(spec.chart, point.s, point.us);
        const color = root.querySelector('[data-form="' + point.form + '"]').style.getPropertyValue("--form");
        Object.entries({ cx: x, cy: y, r: 4, style: "fill:" + color })
          .forEach(([name, value]) => mark.setAttribute(name, value));
        const words = document.createElementNS("http://www.w3.org/2000/svg", "title");
        words.textContent = point.version + ", s=" + point.s + ": " + us(point.us);
        mark.append(words);
        return mark;
      }));
  }

  function setUp(root) {
    if (root.dataset.ready) return;
    root.dataset.ready = "true";
    const spec = JSON.parse(root.dataset.spec);
    const at = model(spec);
    const inputs = [...root.querySelectorAll("input")];
    root.querySelector(".mla-figure__sliders").hidden = false;

    function chosen() {
      const sizes = Object.fromEntries(inputs.map((input) =>
        [input.name, spec.sliders[input.name][Number(input.value)]]));
      return { ...sizes, n: Math.min(sizes.n, sizes.t) };
    }

    function update() {
      const sizes = chosen();
      const times = {};
      inputs.forEach((input) => {
        input.setAttribute("aria-valuetext", sizes[input.name]);
        input.parentElement.querySelector("output").textContent = sizes[input.name];
      });
      root.querySelectorAll("[data-form]").forEach((card) => {
        const found = at(card.dataset.form, sizes);
        times[card.dataset.form] = found.time;
        const shown = { time: us(found.time), memory: us(found.memory), tensor: us(found.tensor),
          bytes: Number((found.bytes / 1e6).toPrecision(4)) + " MB",
          flops: Number((found.flops / 1e9).toPrecision(4)) + " GFLOP" };
        if (spec.power) Object.assign(shown, { power: us(found.power), joules: joules(found.joules) });
        Object.entries(shown).forEach(([name, value]) => {
          card.querySelector('[data-field="' + name + '"]').textContent = value;
        });
      });
      root.querySelectorAll("[data-curve]").forEach((line) => {
        line.setAttribute("d", spec.chart.s.map((s, step) => (step ? "L" : "M") +
          place(spec.chart, s, at(line.dataset.curve, { ...sizes, s }).time).join(" ")).join(" "));
      });
      root.querySelector(".mla-figure__message").textContent = message(times, sizes);
      marks(spec, sizes, root);
    }

    inputs.forEach((input) => input.addEventListener("input", update));
  }

  hypermla.onPage(() => document.querySelectorAll(".mla-figure").forEach(setUp));
})();
