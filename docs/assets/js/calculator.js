// The advisor. What was measured, formulas and ceilings come as data in the page: see measured in
// generators/mla/advisor.py and calculator_spec in src/mla_var3/workloads/mla/regimes.py. This file
// finds the nearest record, evaluates the formulas, and keeps the inputs in the page's address.
(function () {
  "use strict";

  const MIXED = "mla_var6_plus";
  const LATENT = "flash_mla";
  // Below so many microseconds time hardly depends on sizes (tests/generators/mla/test_advisor.py).
  const SHORT = 30;
  // Rows of a tile of queries, and the share of multiprocessors below which keys are split.
  const ROWS = 64;
  // Columns of a product that hold few rows, as kernels/cute_python/kit/thin_slabs.py has them.
  const COLUMNS = [8, 16, 32];
  const SHARE = 0.75;

  // Why a measured time may be shorter than a reference time.
  const REFERENCE = "A reference time is not a bound: it takes these ceilings and, where they were measured, " +
    "the joules of matrix products and copies back to back. A kernel that draws less, or that is timed " +
    "with pauses for the L2 flush as records are, can be faster.";
  // What binds a bound, in words.
  const BINDS = {
    arithmetic: "arithmetic binds: FLOPs at the tensor cores' peak",
    memory: "memory binds: bytes at the DRAM's peak",
    power: "power binds: joules at the board's limit",
  };

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

  // The share of query-key pairs that a mask leaves: query i of s sees keys 0 to t-s+i.
  function seen(sizes, mask) {
    if (mask !== "causal") return 1;
    const { s, t } = sizes;
    const least = Math.min(s, t);
    return 1 - (least * (least - 1) / 2 + Math.max(s - t, 0) * t) / (s * t);
  }

  // Work and time of every design at given rates, the mixed one at any n; of masked problems FLOPs
  // are the share of pairs that the mask leaves, which none of the designs can undercut.
  function model(spec, sizes, device, mask) {
    const ceilings = { tflops: device.tflops, gbps: device.gbps };
    const timeOf = formula(spec.time_us);
    const powerOf = formula(device.power);
    const share = seen(sizes, mask);
    const kernels = spec.kernels.map((kernel) => ({
      name: kernel.name,
      flops: formula(kernel.flops),
      bytes: formula(kernel.bytes),
    }));

    function at(kernel, n) {
      const given = { ...sizes, ...ceilings, n };
      const flops = share * kernel.flops(given);
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

  // What a kernel of the analysis reads, in words: its name is that of a design as well.
  const way = (spec, name) => spec.kernels.find((kernel) => kernel.name === name).reads;

  function show(root, spec, device, result, t) {
    const { rows, winner, gain } = result;
    const named = winner.name === MIXED ? " with n = " + winner.n + " of " + t : "";
    root.querySelector(".calculator-answer").textContent =
      "By the cost model attention is fastest over " + way(spec, winner.name) + named +
      ", with equal lengths and no mask: reference time " + time(winner.us) +
      ", bound by " + winner.bound + (gain > 1.005 ? ", " + gain.toFixed(2) + "x the better pure design" : "") +
      ". Ceilings (" + device.ceiling_kind + "): " + device.tflops + " TFLOP/s, " +
      device.gbps + " GB/s. " + REFERENCE;
    // The advice has tables of its own.
    const table = root.querySelector("[data-times]");
    table.tBodies[0].replaceChildren(
      ...rows.map((row) => {
        const line = document.createElement("tr");
        line.dataset.kernel = row.name;
        line.dataset.us = String(row.us);
        line.dataset.n = String(row.n);
        if (row === winner) line.className = "calculator-winner";
        const reads = way(spec, row.name);
        const name = cell(row.name === MIXED ? reads + ", n = " + row.n : reads, "th");
        name.scope = "row";
        line.append(name, cell(scaled(row.flops, "FLOP")), cell(scaled(row.bytes, "B")),
          cell(time(row.us)), cell(row.bound));
        return line;
      })
    );
    table.hidden = false;
  }

  // How far a record is from the inputs, in factors of two: of rows, of keys and of what else
  // ``NEAR`` in generators/mla/advisor.py weighs.
  function distance(measured, answer, sizes) {
    const product = (from, axes) => axes.reduce((all, name) => all * from[name], 1);
    return measured.near.reduce((sum, { axes, weight }) =>
      sum + weight * Math.abs(Math.log2(product(sizes, axes) / product(answer, axes))), 0);
  }

  // A record older than its sources says less about other sizes: so many factors of two. And one
  // of a library alone says nothing of ours: where its problem is not the reader's, a record of ours
  // is taken that is so much further away.
  const STALE = 2;
  const LIBRARY = 3;

  // Whether a record has another mask; a query alone sees all keys.
  const otherMask = (answer, asked) =>
    asked.sizes.s > 1 && answer.s > 1 && answer.mask !== asked.mask;

  // Records of the same device and cache, pages and lengths among it: of other pages a kernel may
  // read nothing.
  function kept(measured, asked) {
    return measured.answers.filter((answer) =>
      answer.device === asked.device && answer.cache === asked.cache);
  }

  const sameMemory = (answer, asked) =>
    answer.page === asked.page && answer.lengths === asked.lengths;

  function nearest(measured, asked, suits = () => true) {
    return kept(measured, asked)
      .filter((answer) => sameMemory(answer, asked) && suits(answer))
      .map((answer) => {
        const far = distance(measured, answer, asked.sizes) +
          (otherMask(answer, asked) ? measured.masked : 0);
        const less = (answer.found[0].stale ? STALE : 0) + (libraryAlone(answer) ? LIBRARY : 0);
        return { answer, far, rank: far + (far ? less : 0) };
      })
      .reduce((one, other) => (!one || other.rank < one.rank ? other : one), null);
  }

  // The least of all designs, which no kernel of theirs can beat, and that of one design at an n.
  // Of unequal lengths the work is not known here, so that nothing bounds it.
  function bounds(spec, measured, asked, kernel, n) {
    const rates = measured.bounds[asked.device];
    if (!rates) return null;
    const { kernels, at, least } = model(spec, asked.sizes, rates, asked.mask);
    const all = kernels.map(least).reduce((one, other) => (other.us < one.us ? other : one));
    const own = at(kernels.find((item) => item.name === kernel), n);
    return { all: asked.lengths === "equal" ? all : null, own };
  }

  const libraryAlone = (answer) => answer.found.every((found) => found.language === "library");

  function confidence({ far, answer }, asked, other) {
    if (libraryAlone(answer)) {
      return "low: no kernel of ours was timed there";
    }
    if (far === 0 && !other && !answer.found[0].stale) {
      return "high: this very problem was measured";
    }
    if (far <= 2 && answer.h === asked.sizes.h && !other) {
      return "medium: the nearest record is at most four times off in rows and keys, with as many heads";
    }
    return "low: the nearest record is far away, so measure before you rely on it";
  }

  // A version as people call it: a library's kernel by the library's name.
  function display(measured, version) {
    return measured.names[version.split(/[ @]/)[0]] || version;
  }

  // Text of which versions are links to their pages, as the list after the advisor has them.
  function paragraph(measured, text, kind) {
    const element = document.createElement("p");
    const pages = [...document.querySelectorAll(".advice-pages a")];
    const of = new Map(pages.map((anchor) => [anchor.textContent, anchor.href]));
    for (const part of text.split(measured.few ?
      new RegExp("([\\w@-]+ v\\d+|" + measured.few + ")") : /([\w@-]+ v\d+)/)) {
      const address = of.get(part);
      const called = display(measured, part);
      const shown = address ? document.createElement("a") : document.createTextNode(called);
      if (address) Object.assign(shown, { href: address, textContent: called });
      element.append(shown);
    }
    if (kind) element.className = kind;
    return element;
  }

  function described(found) {
    return found.version + (found.n ? " with n = " + found.n : "");
  }

  // The fastest of an answer, and those that are as fast within noise.
  function fastest({ found: all }) {
    return all.filter((found) => found.tied || found === all[0]);
  }

  // How a record's cache, lengths and mask are, in words.
  function conditions(measured, answer) {
    const said = [];
    if (answer.cache === LATENT) {
      said.push(measured.pages[answer.page], measured.lengths[answer.lengths]);
    }
    if (answer.s > 1) said.push(measured.masks[answer.mask]);
    return said.join(", ");
  }

  function placed(measured, answer) {
    const sizes = measured.axes.map((axis) => axis + "=" + answer[axis]).join(" ");
    const said = conditions(measured, answer);
    return said ? sizes + ", " + said : sizes;
  }

  // The nearest record with as many query tokens, where the nearest of all has another number.
  function sameQueries(measured, asked, answer) {
    const { s } = asked.sizes;
    if (answer.s === s) return [];
    const near = nearest(measured, asked, (other) => other.s === s);
    if (!near) return [];
    const tied = fastest(near.answer);
    const [best] = near.answer.found;
    return [paragraph(measured, "The nearest record with s=" + s + " is further off: " +
      tied.map((found) => described(found) + ", " + time(found.us)).join("; ") +
      (tied.length > 1 ? " (as fast within noise)" : "") + (best.stale ? " (stale)" : "") + " at " +
      placed(measured, near.answer) + ".")];
  }

  // What was the fastest at the same sizes where the cache, lengths or mask are others.
  function otherwise(measured, asked, answer) {
    const others = kept(measured, asked).filter((other) => other !== answer &&
      measured.axes.every((axis) => other[axis] === answer[axis]));
    if (!others.length) return [];
    const list = document.createElement("ul");
    for (const other of others) {
      const [best] = other.found;
      const line = document.createElement("li");
      line.append(...paragraph(measured, conditions(measured, other) + ": " + described(best) + " " +
        time(best.us) + "." + against(measured, other)).childNodes);
      list.append(line);
    }
    return [paragraph(measured, "The fastest at the same sizes otherwise, each of its own run:"), list];
  }

  function command(version, asked, n) {
    const { sizes } = asked;
    const flags = ["b", "h", "s", "t"].map((name) => "--" + name + "=" + sizes[name]);
    if (n) flags.push("--n=" + n);
    if (asked.page) flags.push("--page=" + asked.page);
    if (asked.lengths !== "equal") flags.push("--lengths=" + asked.lengths);
    if (asked.mask === "causal" && sizes.s > 1) flags.push("--causal");
    if (asked.dtype !== "bf16") flags.push("--dtype=" + asked.dtype);
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
      shown.append(bar, " " + time(row.us) + (row.said ? ", " + row.said : ""));
      line.append(name, shown);
    }
    return table;
  }

  // What was timed beside the best, the library that all compare with, and the bound there.
  function beside(spec, measured, answer, tied, next) {
    const [best] = answer.found;
    const named = (found) => described(found).replace(found.version, display(measured, found.version));
    const rows = tied.map((found) => ({ name: named(found), us: found.us, kind: "own" }));
    if (next && next.run === best.run) {
      rows.push({ name: named(next), us: next.us, kind: "before" });
    }
    const { peer } = answer;
    if (isBeside(answer) && !answer.found.slice(0, rows.length).some((found) => found.version === peer.version)) {
      rows.push({ name: peer.name, us: peer.us, kind: "peer" });
    }
    const sizes = Object.fromEntries(spec.inputs.map((input) => [input.name, input.default]));
    for (const axis of measured.axes) sizes[axis] = answer[axis];
    const least = bounds(spec, measured, { ...answer, sizes }, answer.cache, best.n);
    if (least && least.all) {
      const { us, bound } = least.all;
      for (const row of rows) row.said = Math.round((100 * us) / row.us) + " % of the bound";
      rows.push({ name: "the bound", us, kind: "bound", said: "by " + bound });
    }
    return bars("One run, at " + placed(measured, answer), rows);
  }

  const isBeside = (answer) => answer.peer && answer.peer.run === answer.found[0].run;

  // How the library did in that run, in words; a time of another run is told and not compared.
  function against(measured, answer) {
    const [best] = answer.found;
    const { peer } = answer;
    if (!peer) {
      return best.language === "library" ? "" :
        " No time to compare with: " + measured.peer + " was not timed at this problem.";
    }
    if (best.version === peer.version) return "";
    if (!isBeside(answer)) return " " + peer.name + " was not in that run; in another: " + time(peer.us) + ".";
    return " " + peer.name + " in that run: " + time(peer.us) + " (" +
      (peer.tied ? "as fast" : compared(peer.us, best.us)) + ").";
  }

  // That a library is named since nothing of ours was timed with such a cache.
  function untimed(measured, { answer, far }) {
    if (!libraryAlone(answer)) return "";
    const pages = answer.page ? " with " + measured.pages[answer.page] : "";
    return ": no kernel of ours was timed" + pages +
      (far ? " at the nearest problem measured." : " at this problem.");
  }

  // Which of versions that are as fast is what.
  function tieBroken(answer, tied) {
    if (tied.length < 2) return "";
    const newest = tied.find((found) => found.version === answer.newest);
    const library = tied.find((found) => found.language === "library");
    return " These are as fast within noise" +
      (newest && newest.language !== "library" ? "; " + newest.version + " is our newest" : "") +
      (library ? "; " + library.version + " is a library" : "") + ".";
  }

  // What all records have and the reader has not.
  function unlike(spec, measured, asked) {
    const said = spec.inputs
      .filter(({ name }) => !measured.axes.includes(name))
      .filter((input) => asked.sizes[input.name] !== input.default)
      .map((input) => input.name + " is " + asked.sizes[input.name] + ", measured " + input.default);
    if (asked.dtype !== "bf16") said.push("only bf16 was measured");
    return said;
  }

  // A device of the same architecture on which something like it was timed.
  function sameChip(measured, asked) {
    const archs = measured.archs || {};
    return Object.keys(archs).find((key) => key !== asked.device &&
      archs[key] === archs[asked.device] && nearest(measured, { ...asked, device: key }));
  }

  // Why no version is advised.
  function unmeasured(measured, asked, name) {
    const known = kept(measured, asked);
    const had = [...new Set(known.map((answer) => conditions(measured, { ...answer, s: 1 })))];
    const said = conditions(measured, { ...asked, s: 1 });
    return [
      paragraph(measured, "Nothing was measured on " + name +
        (said ? " with such a cache: " + said : " with such a cache") + ".", "advice-answer"),
      paragraph(measured, known.length && said ? "Records have: " + had.join("; ") + "." :
        "No kernel is advised: the times below are the model's, and where records exist they " +
        "differ from it. Measure there first."),
    ];
  }

  // Why few sequences with long contexts are hard: their tiles of rows leave multiprocessors idle.
  function fewTiles(measured, { sizes, device, cache }) {
    const sms = (measured.sms || {})[device];
    const rows = sizes.h * sizes.s;
    const tiles = sizes.b * Math.ceil(rows / ROWS);
    if (cache !== LATENT || !sms || tiles >= SHARE * sms) return [];
    // Newer versions make so few rows columns of the products.
    const columns = COLUMNS.find((n) => n >= rows);
    const wide = columns ? columns + " columns (" + (columns - rows) + " unused; as " + ROWS +
      " rows it would be " + (ROWS - rows) + ")" : ROWS + " rows";
    return [paragraph(measured, sizes.b + " sequences of " + rows + " query rows are " +
      tiles + " tiles of " + wide + " for " + sms + " multiprocessors. With one block per tile " +
      (sms - tiles) + " of them are idle while each block walks all " + sizes.t + " keys. " + measured.few +
      " among blocks uses them; the price is the merge of their results.")];
  }

  // What the records say, as elements in the order in which they are read.
  function advice(spec, measured, asked, preferred) {
    const { sizes, device, cache } = asked;
    const name = (spec.devices.find((item) => item.key === device) || { name: device }).name;
    const say = (text, kind) => paragraph(measured, text, kind);
    const near = nearest(measured, asked);
    if (!measured.runs[device] || !measured.runs[device].length) {
      return [say("No kernel here runs on " + name + ".", "advice-answer"),
        say("Its times below are reference times of the cost model, for planning only.")];
    }
    if (!near) {
      const twin = sameChip(measured, asked);
      if (!twin) return unmeasured(measured, asked, name);
      const other = (spec.devices.find((item) => item.key === twin) || { name: twin }).name;
      const rates = (key) => measured.bounds[key] && measured.bounds[key].gbps.toLocaleString("en");
      return [
        say("Not timed on " + name + ". The same machine code was, on " + other + ":", "advice-answer"),
        say("All that follows is of " + other + "." + (rates(device) && rates(twin) ?
          " Its memory has " + rates(twin) + " GB/s where " + name + " has " + rates(device) +
          ", so expect other times; which kernel is ahead was not tried there." : "")),
        ...advice(spec, measured, { ...asked, device: twin }, preferred),
      ];
    }
    const { answer, far } = near;
    const [best] = answer.found;
    const tied = fastest(answer);
    const next = answer.found.find((found) => !tied.includes(found));
    const where = placed(measured, answer);
    const off = measured.axes.filter((axis) => answer[axis] !== sizes[axis])
      .map((axis) => axis + " is " + sizes[axis] + ", measured " + answer[axis]);
    if (otherMask(answer, asked)) off.push("measured with " + measured.masks[answer.mask]);
    const other = unlike(spec, measured, asked);
    off.push(...other);
    const parts = [say((tied.length > 1 ? "Tie: " : "Use ") +
      tied.map(described).join(" or ") + untimed(measured, near), "advice-answer")];
    if (measured.naming) parts.push(say(measured.naming));
    parts.push(say("Confidence " + confidence(near, asked, other.length > 0) + ". " +
      (off.length ? "Nearest record: " + off.join("; ") + "." : "")));
    parts.push(say("Measured there (" + where + "): " +
      tied.map((found) => described(found) + " " + time(found.us)).join(", ") +
      (best.stale ? " (stale)" : "") + "." + tieBroken(answer, tied) +
      (next ? " Next: " + next.version + ", " + time(next.us) + (next.run === best.run ?
        " (" + compared(next.us, best.us) + ")" : " (another run)") + "." : "") + against(measured, answer)));
    parts.push(...fewTiles(measured, asked));
    parts.push(beside(spec, measured, answer, tied, next));
    if (answer.outdated) {
      parts.push(say("Faster there before its sources changed: " +
        described(answer.outdated) + ", " + time(answer.outdated.us) + " (stale)."));
    }
    parts.push(...sameQueries(measured, asked, answer), ...otherwise(measured, asked, answer));
    const least = bounds(spec, measured, asked, answer.cache, best.n);
    if (least) {
      parts.push(say((least.all ? "Bound for your sizes: " + time(least.all.us) +
        ", which no kernel of these designs can beat; " + BINDS[least.all.bound] + "." : "") +
        (best.share && far ? " The record reached " + Math.round(best.share * 100) +
          " % of its own bound; at that share yours would take about " +
          time(least.own.us / best.share) + ": an estimate" +
          (Math.min(best.us, least.own.us / best.share) < SHORT ? ", and below " + SHORT +
          " us a poor one, since time then hardly depends on sizes" : "") +
          ". The reference times below are the " +
          "cost model's, which a good kernel can beat." : "")));
    }
    const rivals = preferred !== cache &&
      nearest(measured, { ...asked, ...memoryOf(asked, preferred), cache: preferred });
    const rival = rivals && rivals.far === far && rivals.answer.found[0];
    if (rival && rival.us > best.us) {
      parts.push(say("Not advised: " + rival.version + ". The cost model prefers its way, " +
        "the record refutes it: " + time(rival.us) + " there" +
        (rival.run === best.run ? ", " + compared(rival.us, best.us) + "." : ".")));
    }
    parts.push(say("Not in this answer: other data types, a prefix that " +
      "sequences share, the product with Wv after a latent kernel, and decompressing a cache."));
    parts.push(command(best.version, asked, best.n));
    return parts;
  }

  // Only latent caches were timed in pages and with unequal lengths.
  function memoryOf({ page, lengths }, cache) {
    return cache === LATENT ? { page, lengths } : { page: 0, lengths: "equal" };
  }

  function askedOf(form, sizes) {
    const { device, cache, dtype, page, lengths, mask } = form.elements;
    for (const field of [page, lengths]) field.disabled = cache.value !== LATENT;
    const memory = memoryOf({ page: Number(page.value), lengths: lengths.value }, cache.value);
    return { sizes, device: device.value, cache: cache.value, dtype: dtype.value,
      mask: mask.value, ...memory };
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
      // The theme's own ``h`` is a word; a number is what a reader wrote for heads.
      const field = (said !== "h" || wholeNumber(value) > 0) && form.elements[name];
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
        root.querySelector("[data-times]").hidden = true;
        root.querySelector(".advice").replaceChildren();
        return;
      }
      const device = spec.devices.find((item) => item.key === form.elements.device.value);
      const result = solve(spec, sizes, device);
      show(root, spec, device, result, sizes.t);
      const asked = askedOf(form, sizes);
      if (measured) {
        root.querySelector(".advice").replaceChildren(
          ...advice(spec, measured, asked, result.winner.name));
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
