// The advisor. What was measured, formulas and ceilings come as data in the page: see measured in
// generators/mla/advisor.py and calculator_spec in src/mla_var3/workloads/mla/regimes.py. This file
// finds the nearest record, evaluates the formulas, and keeps the inputs in the page's address.
(function () {
  "use strict";

  const MIXED = "mla_var6_plus";

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

  // Work and time of every design at given rates, the mixed one at any n.
  function model(spec, sizes, device) {
    const ceilings = { tflops: device.tflops, gbps: device.gbps };
    const timeOf = formula(spec.time_us);
    const powerOf = formula(device.power);
    const kernels = spec.kernels.map((kernel) => ({
      name: kernel.name,
      flops: formula(kernel.flops),
      bytes: formula(kernel.bytes),
    }));

    function at(kernel, n) {
      const given = { ...sizes, ...ceilings, n };
      const flops = kernel.flops(given);
      const bytes = kernel.bytes(given);
      const rated = timeOf({ ...given, flops, bytes });
      const power = powerOf({ flops, bytes });
      // With one of the two at zero the other's time is left.
      const compute = timeOf({ ...given, flops, bytes: 0 });
      const memory = timeOf({ ...given, flops: 0, bytes });
      const bound = power > rated ? "power" : compute >= memory ? "arithmetic" : "memory";
      return { name: kernel.name, n, flops, bytes, us: Math.max(rated, power), bound };
    }

    function least(kernel) {
      let found = at(kernel, 0);
      if (kernel.name !== MIXED) return found;
      for (let n = spec.multiple; n < sizes.t + spec.multiple; n += spec.multiple) {
        const other = at(kernel, Math.min(n, sizes.t));
        if (other.us < found.us) found = other;
      }
      return found;
    }

    return { kernels, at, least };
  }

  // How one time compares with another, as people say it.
  function compared(us, other) {
    const slower = us >= other;
    const ratio = slower ? us / other : other / us;
    return (ratio < 1.5 ? Math.round(100 * Math.abs(1 - us / other)) + " %" :
      Number(ratio.toPrecision(3)) + "x") + (slower ? " slower" : " faster");
  }

  // A whole number as people type it: 32768 or 32k; NaN of anything else.
  function wholeNumber(typed) {
    const found = /^(\d+)(k?)$/i.exec(typed.trim());
    return found ? Number(found[1]) * (found[2] ? 1024 : 1) : NaN;
  }

  // All that the page shows, from the spec and whole-number sizes.
  function solve(spec, sizes, device) {
    const { kernels, at, least: leastOf } = model(spec, sizes, device);

    function best(kernel) {
      const found = leastOf(kernel);
      const ends = [at(kernel, 0), at(kernel, sizes.t)];
      return ends.find((end) => end.us <= found.us * (1 + spec.tie)) || found;
    }

    const rows = kernels.map((kernel) => (kernel.name === MIXED ? best(kernel) : at(kernel, 0)));
    const least = Math.min(...rows.map((row) => row.us));
    const winner = rows.find((row) => row.us <= least * (1 + spec.tie));
    const single = Math.min(...rows.filter((row) => row.name !== MIXED).map((row) => row.us));
    return { rows, winner, gain: single / winner.us };
  }

  function cell(text, tag) {
    const element = document.createElement(tag || "td");
    element.textContent = text;
    return element;
  }

  function show(root, device, result, t) {
    const { rows, winner, gain } = result;
    const named = winner.name === MIXED ? " with n = " + winner.n + " of " + t : "";
    root.querySelector(".calculator-answer").textContent =
      "The cost model prefers " + winner.name + named + ": reference time " + time(winner.us) +
      ", bound by " + winner.bound + (gain > 1.005 ? ", " + gain.toFixed(2) + "x the better pure design" : "") +
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
        const name = cell(row.name === MIXED ? row.name + ", n = " + row.n : row.name, "th");
        name.scope = "row";
        line.append(name, cell(scaled(row.flops, "FLOP")), cell(scaled(row.bytes, "B")),
          cell(time(row.us)), cell(row.bound));
        return line;
      })
    );
    root.querySelector("table").hidden = false;
  }

  // How far a record is from the inputs, in factors of two. Rows (heads, query tokens) decide what
  // limits a kernel, so they count twice, and of equals the one with as many query tokens is nearer.
  const WEIGHT = { h: 2, s: 2.01 };

  function distance(measured, answer, sizes) {
    return measured.axes.reduce((sum, name) =>
      sum + (WEIGHT[name] || 1) * Math.abs(Math.log2(sizes[name] / answer[name])), 0);
  }

  // A record older than its sources says less about other sizes: so many factors of two.
  const STALE = 2;

  function nearest(measured, sizes, device, cache, suits = () => true) {
    return measured.answers
      .filter((answer) => answer.device === device && answer.cache === cache && suits(answer))
      .map((answer) => {
        const far = distance(measured, answer, sizes);
        return { answer, far, rank: far + (far && answer.found[0].stale ? STALE : 0) };
      })
      .reduce((one, other) => (!one || other.rank < one.rank ? other : one), null);
  }

  // The least of all designs, which no kernel of theirs can beat, and that of one design at an n.
  function bounds(spec, measured, sizes, device, kernel, n) {
    const rates = measured.bounds[device];
    if (!rates) return null;
    const { kernels, at, least } = model(spec, sizes, rates);
    const all = kernels.map(least).reduce((one, other) => (other.us < one.us ? other : one));
    return { all, own: at(kernels.find((item) => item.name === kernel), n) };
  }

  function confidence(far, answer, sizes, dtype, best) {
    if (far === 0 && dtype === "bf16" && !best.stale) return "high: this very problem was measured";
    if (far <= 2 && answer.h === sizes.h && dtype === "bf16") {
      return "medium: the nearest record is at most four times off in all, with as many heads";
    }
    return "low: the nearest record is far away, so measure before you rely on it";
  }

  // Text of which versions are links to their pages, as the list after the advisor has them.
  function paragraph(text, kind) {
    const element = document.createElement("p");
    const pages = [...document.querySelectorAll(".advice-pages a")];
    const of = new Map(pages.map((anchor) => [anchor.textContent, anchor.href]));
    for (const part of text.split(/([\w@-]+ v\d+)/)) {
      const address = of.get(part);
      const shown = address ? document.createElement("a") : document.createTextNode(part);
      if (address) Object.assign(shown, { href: address, textContent: part });
      element.append(shown);
    }
    if (kind) element.className = kind;
    return element;
  }

  function described(found) {
    return found.version + (found.n ? " with n = " + found.n : "");
  }

  function placed(measured, answer) {
    return measured.axes.map((axis) => axis + "=" + answer[axis]).join(" ");
  }

  // The nearest record with as many query tokens, where the nearest of all has another number.
  function sameQueries(measured, sizes, device, cache, answer) {
    if (answer.s === sizes.s) return [];
    const near = nearest(measured, sizes, device, cache, (other) => other.s === sizes.s);
    if (!near) return [];
    const [best] = near.answer.found;
    return [paragraph("The nearest record with s=" + sizes.s + " is further off: " +
      described(best) + ", " + time(best.us) + (best.stale ? " (stale)" : "") + " at " +
      placed(measured, near.answer) + ".")];
  }

  function command(version, sizes, device, n) {
    const flags = ["b", "h", "s", "t"].map((name) => "--" + name + "=" + sizes[name]);
    if (n) flags.push("--n=" + n);
    const element = document.createElement("pre");
    element.append(document.createElement("code"));
    element.firstChild.textContent = "nox -s profile -- " + version + " " + flags.join(" ");
    return element;
  }

  // Times of one run and the bound of its problem, as bars from zero.
  function bars(caption, rows) {
    const longest = Math.max(...rows.map((row) => row.us));
    const table = document.createElement("table");
    table.className = "bars bars--one";
    table.createCaption().textContent = caption;
    const body = table.createTBody();
    for (const row of rows) {
      const line = body.insertRow();
      const name = cell(row.name, "th");
      name.scope = "row";
      const bar = document.createElement("span");
      bar.className = "bars__bar bars__bar--" + row.kind;
      bar.style.width = (60 * row.us) / longest + "%";
      const shown = document.createElement("td");
      shown.append(bar, " " + time(row.us));
      line.append(name, shown);
    }
    return table;
  }

  // What was timed beside the best, the library that all compare with, and the bound there.
  function beside(spec, measured, answer, sizes, tied, next) {
    const [best] = answer.found;
    const rows = tied.map((found) => ({ name: described(found), us: found.us, kind: "own" }));
    if (next && next.run === best.run) {
      rows.push({ name: described(next), us: next.us, kind: "before" });
    }
    const { peer } = answer;
    if (peer && !answer.found.slice(0, rows.length).some((found) => found.version === peer.version)) {
      rows.push({ name: peer.name, us: peer.us, kind: "peer" });
    }
    const there = { ...sizes };
    for (const axis of measured.axes) there[axis] = answer[axis];
    const least = bounds(spec, measured, there, answer.device, answer.cache, best.n);
    if (least) rows.push({ name: "the bound", us: least.all.us, kind: "bound" });
    return bars("One run, at " + placed(measured, answer), rows);
  }

  // How the library did in that run, in words.
  function against(answer) {
    const [best] = answer.found;
    const { peer } = answer;
    if (!peer || best.version === peer.version) return "";
    return " " + peer.name + " in that run: " + time(peer.us) + " (" +
      (peer.tied ? "as fast" : compared(peer.us, best.us)) + ").";
  }

  // What the records say, as elements in the order in which they are read.
  function advice(spec, measured, sizes, device, cache, dtype, preferred) {
    const name = (key) => (spec.devices.find((item) => item.key === key) || { name: key }).name;
    const near = nearest(measured, sizes, device, cache);
    if (!measured.runs[device] || !measured.runs[device].length) {
      return [paragraph("No kernel here runs on " + name(device) + ".", "advice-answer"),
        paragraph("Its times below are reference times of the cost model, for planning only.")];
    }
    if (!near) {
      return [paragraph("Nothing was measured on " + name(device) + " with such a cache.",
        "advice-answer"), paragraph("No kernel is advised: the times below are the model's, and " +
        "where records exist they differ from it. Measure there first.")];
    }
    const { answer, far } = near;
    const [best] = answer.found;
    const tied = answer.found.filter((found) => found.tied || found === best);
    const next = answer.found.find((found) => !tied.includes(found));
    const where = placed(measured, answer);
    const off = measured.axes.filter((axis) => answer[axis] !== sizes[axis])
      .map((axis) => axis + " is " + sizes[axis] + ", measured " + answer[axis]);
    if (dtype !== "bf16") off.push("only bf16 was measured");
    const parts = [paragraph((tied.length > 1 ? "Tie: " : "Use ") +
      tied.map(described).join(" or "), "advice-answer")];
    parts.push(paragraph("Confidence " + confidence(far, answer, sizes, dtype, best) + ". " +
      (off.length ? "Nearest record: " + off.join("; ") + "." : "")));
    if (tied.length > 1) {
      parts.push(paragraph(best.language === "library" ?
        "The first is a library: the others are as fast, within noise." :
        "The first is the newest version: start with it."));
    }
    parts.push(paragraph("Measured there (" + where + "): " +
      tied.map((found) => described(found) + " " + time(found.us)).join(", ") +
      (best.stale ? " (stale)" : "") + "." +
      (next ? " Next: " + next.version + ", " + time(next.us) + (next.run === best.run ?
        " (" + compared(next.us, best.us) + ")" : " (another run)") + "." : "") + against(answer)));
    parts.push(beside(spec, measured, answer, sizes, tied, next));
    if (answer.outdated) {
      parts.push(paragraph("Faster there before its sources changed: " +
        described(answer.outdated) + ", " + time(answer.outdated.us) + " (stale)."));
    }
    parts.push(...sameQueries(measured, sizes, device, cache, answer));
    const least = bounds(spec, measured, sizes, device, answer.cache, best.n);
    if (least) {
      parts.push(paragraph("Bound for your sizes: " + time(least.all.us) +
        ", which no kernel of these designs can beat." +
        (best.share && far ? " The record reached " + Math.round(best.share * 100) +
          " % of its own bound; at that share yours would take about " +
          time(least.own.us / best.share) + ": an estimate. The reference times below are the " +
          "cost model's, which a good kernel can beat." : "")));
    }
    const other = preferred !== cache && nearest(measured, sizes, device, preferred);
    const rival = other && other.far === far && other.answer.found[0];
    if (rival && rival.us > best.us) {
      parts.push(paragraph("Not advised: " + rival.version + ". The cost model prefers its way, " +
        "the record refutes it: " + time(rival.us) + " there" +
        (rival.run === best.run ? ", " + compared(rival.us, best.us) + "." : ".")));
    }
    parts.push(paragraph("Not in this answer: a causal mask, other data types, a prefix that " +
      "sequences share, the product with Wv after a latent kernel, and decompressing a cache."));
    parts.push(command(best.version, sizes, device, best.n));
    return parts;
  }

  // The address names heads in full: the theme marks words of a page that ``h`` names.
  const HEADS = "heads";

  function setUp(root) {
    if (root.dataset.ready) return;
    root.dataset.ready = "true";
    const spec = JSON.parse(root.dataset.spec);
    const measured = JSON.parse(root.dataset.measured || "null");
    const form = root.querySelector("form");
    for (const [said, value] of new URLSearchParams(location.search)) {
      const name = said === HEADS ? "h" : said;
      const field = said !== "h" && form.elements[name];
      if (field && value) field.value = value;
      if (field && !field.value) field.selectedIndex = 0;
    }

    function update() {
      const sizes = {};
      let fault = "";
      for (const input of spec.inputs) {
        const field = form.elements[input.name];
        const value = wholeNumber(field.value);
        const sound = value >= input.minimum && value <= input.maximum;
        field.setAttribute("aria-invalid", String(!sound));
        if (!sound && !fault) {
          fault = input.name + " must be a whole number from " + input.minimum + " to " +
            input.maximum + ", such as 4096 or 32k.";
        }
        sizes[input.name] = value;
      }
      if (fault) {
        root.querySelector(".calculator-answer").textContent = fault;
        root.querySelector("table").hidden = true;
        root.querySelector(".advice").replaceChildren();
        return;
      }
      const device = spec.devices.find((item) => item.key === form.elements.device.value);
      const result = solve(spec, sizes, device);
      show(root, device, result, sizes.t);
      if (measured) {
        const { cache, dtype } = form.elements;
        root.querySelector(".advice").replaceChildren(...advice(
          spec, measured, sizes, device.key, cache.value, dtype.value, result.winner.name));
      }
    }

    function remember() {
      const inputs = new URLSearchParams(
        [...new FormData(form)].map(([name, value]) => [name === "h" ? HEADS : name, value]));
      history.replaceState(history.state, "", "?" + inputs + location.hash);
    }

    form.addEventListener("input", () => {
      update();
      remember();
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    update();
  }

  hypermla.onPage(() => document.querySelectorAll(".calculator").forEach(setUp));
})();
