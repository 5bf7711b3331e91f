// The regime calculator. Formulas and ceilings come from the library, as data in the page;
// this file only evaluates them. See calculator_spec in src/mla_var3/workloads/mla/regimes.py.
(function () {
  "use strict";

  function compile(expression, names) {
    return new Function("{" + names.join(",") + "}", "return " + expression + ";");
  }

  // Values to a text with three significant digits and a unit prefix.
  function scaled(value, unit) {
    const prefixes = ["", "k", "M", "G", "T", "P", "E"];
    let step = 0;
    while (value >= 1000 && step < prefixes.length - 1) {
      value /= 1000;
      step += 1;
    }
    return Number(value.toPrecision(3)) + " " + prefixes[step] + unit;
  }

  function time(us) {
    if (us < 1000) return Number(us.toPrecision(4)) + " us";
    return us < 1e6
      ? Number((us / 1e3).toPrecision(4)) + " ms"
      : Number((us / 1e6).toPrecision(4)) + " s";
  }

  // All that the page shows, from the spec and whole-number sizes.
  function solve(spec, sizes, device) {
    const names = [...Object.keys(sizes), "n", "tflops", "gbps", "flops", "bytes"];
    const ceilings = { tflops: device.tflops, gbps: device.gbps };
    const timeOf = compile(spec.time_us, names);
    const kernels = spec.kernels.map((kernel) => ({
      name: kernel.name,
      flops: compile(kernel.flops, names),
      bytes: compile(kernel.bytes, names),
    }));

    function at(kernel, n) {
      const given = { ...sizes, ...ceilings, n };
      const flops = kernel.flops(given);
      const bytes = kernel.bytes(given);
      const us = timeOf({ ...given, flops, bytes });
      // With one of the two at zero the other's time is left.
      const compute = timeOf({ ...given, flops, bytes: 0 });
      const memory = timeOf({ ...given, flops: 0, bytes });
      const bound = compute >= memory ? "arithmetic" : "memory";
      return { name: kernel.name, n, flops, bytes, us, bound };
    }

    function best(kernel) {
      const multiple = spec.best_n.multiple;
      const balance = compile(spec.best_n.balance, names)({ ...sizes, ...ceilings });
      const low = Math.floor(balance / multiple) * multiple;
      const candidates = [0, low, low + multiple, sizes.t]
        .filter((n) => Number.isFinite(n) && n >= 0 && n <= sizes.t)
        .sort((x, y) => x - y);
      return candidates.map((n) => at(kernel, n)).reduce((x, y) => (y.us < x.us ? y : x));
    }

    const mixed = "mla_var6_plus";
    const rows = kernels.map((kernel) => (kernel.name === mixed ? best(kernel) : at(kernel, 0)));
    const least = Math.min(...rows.map((row) => row.us));
    const winner = rows.find((row) => row.us <= least * (1 + spec.tie));
    const single = Math.min(...rows.filter((row) => row.name !== mixed).map((row) => row.us));
    return { rows, winner, gain: single / winner.us };
  }

  function cell(text, tag) {
    const element = document.createElement(tag || "td");
    element.textContent = text;
    return element;
  }

  function show(root, device, result, t) {
    const { rows, winner, gain } = result;
    const named = winner.name === "mla_var6_plus" ? " with n = " + winner.n + " of " + t : "";
    root.querySelector(".calculator-answer").textContent =
      "Use " + winner.name + named + ": " + time(winner.us) + " at least, bound by " +
      winner.bound + (gain > 1.005 ? ", " + gain.toFixed(2) + "x the better pure design" : "") +
      ". Ceilings (" + device.ceiling_kind + "): " + device.tflops + " TFLOP/s, " +
      device.gbps + " GB/s.";
    const body = root.querySelector("tbody");
    body.replaceChildren(
      ...rows.map((row) => {
        const line = document.createElement("tr");
        line.dataset.kernel = row.name;
        line.dataset.us = String(row.us);
        line.dataset.n = String(row.n);
        if (row === winner) line.className = "calculator-winner";
        const name = cell(row.name === "mla_var6_plus" ? row.name + ", n = " + row.n : row.name, "th");
        name.scope = "row";
        line.append(name, cell(scaled(row.flops, "FLOP")), cell(scaled(row.bytes, "B")),
          cell(time(row.us)), cell(row.bound));
        return line;
      })
    );
    root.querySelector("table").hidden = false;
  }

  function setUp(root) {
    if (root.dataset.ready) return;
    root.dataset.ready = "true";
    const spec = JSON.parse(root.dataset.spec);
    const form = root.querySelector("form");

    function update() {
      const sizes = {};
      let fault = "";
      for (const input of spec.inputs) {
        const field = form.elements[input.name];
        const value = Number(field.value);
        const sound = field.value !== "" && Number.isInteger(value) &&
          value >= input.minimum && value <= input.maximum;
        field.setAttribute("aria-invalid", String(!sound));
        if (!sound && !fault) {
          fault = input.name + " must be a whole number from " + input.minimum + " to " +
            input.maximum + ".";
        }
        sizes[input.name] = value;
      }
      if (fault) {
        root.querySelector(".calculator-answer").textContent = fault;
        root.querySelector("table").hidden = true;
        return;
      }
      const device = spec.devices.find((item) => item.key === form.elements.device.value);
      show(root, device, solve(spec, sizes, device), sizes.t);
    }

    form.addEventListener("input", update);
    form.addEventListener("submit", (event) => event.preventDefault());
    update();
  }

  hypermla.onPage(() => document.querySelectorAll(".calculator").forEach(setUp));
})();
