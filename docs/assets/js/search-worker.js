/* The search: the theme's worker, replaced by one that asks MiniSearch. See generators/build/searching.py
   for what it searches, and the theme's SearchMessageType for the messages. */
"use strict";

const hypermlaSearch = (() => {
  const SETUP = 0, READY = 1, QUERY = 2, RESULT = 3;
  const STOP = new Set(("a am an and any are as at be but by can could do does done for from get give had " +
    "has have how i if in inside into is it its me my no not of on only or our own should some than that " +
    "the then there they this to too was we were what when which who why will with would you your").split(" "));
  const FIELDS = { title: 6, names: 9, page: 2, prose: 1, rest: 0.4 };
  /* How much a word counts that means the same as one that was asked for. */
  const ALIKE = 0.6;
  /* How much more a hit counts that is called exactly what was asked for. */
  const EXACT = 12;
  const SHOWN = 30;
  const SNIPPET = 180;

  /* One spelling per word: American, singular, without -ing and -ed. */
  function stem(word) {
    let term = word.toLowerCase().replace(/is(ation|e|ed|er|ing)(s?)$/, "iz$1$2")
      .replace(/^colour/, "color").replace(/^neighbour/, "neighbor").replace(/entre$/, "enter");
    if (term.length > 4) term = term.replace(/ies$/, "y").replace(/([^s])s$/, "$1");
    if (term.length > 6) term = term.replace(/(?:ization|izing|ized|izer)$/, "ize");
    if (term.length > 5) term = term.replace(/([a-z]{3,})(?:ing|ed)$/, "$1");
    return term.length > 4 ? term.replace(/e$/, "") : term;
  }

  function process(word) {
    const term = stem(word);
    return !term || STOP.has(word.toLowerCase()) ? null : term;
  }

  /* Words; a name such as mla_var6_plus counts whole and in its parts, a size such as b=128 as one:
     its letter and its number stand in every other problem. */
  function tokenize(text) {
    const words = text.match(/\b[a-z]\w{0,7}=\d+\b|[\p{L}\p{N}]+(?:[_.][\p{L}\p{N}]+)*/gu) || [];
    return words.flatMap((word) => (/[_.]/.test(word) ? [word, ...word.split(/[_.]/)] : [word]));
  }

  /* The index over sections; the first entry is no section but words that mean the same. */
  function make(docs) {
    const index = new MiniSearch({
      fields: Object.keys(FIELDS),
      idField: "location",
      tokenize,
      processTerm: process,
      extractField: (doc, name) =>
        name === "names" ? (doc.names || []).join(" ; ") : doc[name],
    });
    const known = new Map(docs.filter((doc) => !doc.alike).map((doc) => [doc.location, doc]));
    index.addAll([...known.values()]);
    const alike = new Map();
    for (const group of docs.flatMap((doc) => doc.alike || [])) {
      const stems = group.map(process).filter(Boolean);
      for (const term of stems) alike.set(term, [...new Set([...(alike.get(term) || []), ...stems])]);
    }
    return { index, known, alike, commonness: commonness(known) };
  }

  /* In how many sections each word stands. */
  function commonness(known) {
    const found = new Map();
    for (const doc of known.values()) {
      const text = [doc.title, ...(doc.names || []), doc.page, doc.prose, doc.rest].join(" ");
      for (const term of new Set(tokenize(text).map(process))) found.set(term, (found.get(term) || 0) + 1);
    }
    return found;
  }

  const plain = (text) => tokenize(text).map(process).filter(Boolean).join(" ");

  function search({ index, known, alike, commonness }, query) {
    const wanted = plain(query);
    if (!wanted) return { items: [] };
    const asked = [...new Set(wanted.split(" "))];
    const own = new Set(asked);
    const meant = asked.flatMap((term) => [term, ...(alike.get(term) || [])]);
    const last = asked[asked.length - 1];
    const found = index.search([...new Set(meant)].join(" "), {
      tokenize: (text) => text.split(" "),
      processTerm: (term) => term,
      boost: FIELDS,
      boostTerm: (term) => (own.has(term) ? 1 : ALIKE),
      prefix: (term) => term === last && term.length > 2,
      fuzzy: (term) => (own.has(term) && term.length > 5 && !commonness.has(term) ? 0.17 : false),
      weights: { prefix: 0.5, fuzzy: 0.2 },
      boostDocument: (id) => known.get(id).weight * (id.includes("#") ? 0.8 : 1),
    });
    const terms = asked.map((term) => ({ any: [term, ...(alike.get(term) || [])], weight: weight(term) }));
    function weight(term) {
      return Math.log(1 + known.size / (1 + (commonness.get(term) || known.size / 50)));
    }
    const scored = ranked(found, known, terms, wanted, weight);
    return { items: grouped(scored, known, query), suggest: [] };
  }

  /* Hits that have all words come first, those that are called so before them. What a section lacks
     and its page has counts for half. */
  function ranked(found, known, terms, wanted, weight) {
    const pages = new Map();
    const pageOf = (hit) => hit.id.split("#")[0];
    for (const hit of found) {
      pages.set(pageOf(hit), new Set([...(pages.get(pageOf(hit)) || []), ...hit.queryTerms]));
    }
    const all = terms.reduce((sum, { weight }) => sum + weight, 0);
    const share = (has) => terms.reduce(
      (sum, { any, weight }) => sum + (any.some((term) => has.has(term)) ? weight : 0), 0) / all;
    /* How well a name is the question: by the words that both have, of those that either has. */
    function fit(name) {
      if (name === wanted) return EXACT;
      const has = new Set(name.split(" "));
      const here = [...has].filter((word) => terms.some(({ any }) => any.includes(word)));
      const part = (words) => words.reduce((sum, word) => sum + weight(word), 0);
      const overlap = share(has) * (part(here) / (part([...has]) || 1));
      const start = name.startsWith(wanted) ? 1.5 : 1;
      return Math.max(start, EXACT * overlap ** 3);
    }
    const scored = found.map((hit) => {
      const doc = known.get(hit.id);
      const exact = Math.max(...[doc.title, ...(doc.names || [])].map((name) => fit(plain(name))));
      const whole = (share(new Set(hit.queryTerms)) + share(pages.get(pageOf(hit)))) / 2;
      return { doc, score: hit.score * whole ** 3 * exact, words: new Set(hit.terms) };
    });
    return scored.sort((one, other) => other.score - one.score);
  }

  /* Hits by page, as the theme shows them: the page itself, then its sections. */
  function grouped(scored, known, query) {
    const pages = new Map();
    for (const hit of scored) {
      const page = hit.doc.location.split("#")[0];
      if (!pages.has(page) && pages.size === SHOWN) continue;
      pages.set(page, [...(pages.get(page) || []), hit]);
    }
    return [...pages].map(([page, hits]) => {
      const kept = hits.slice(0, 4);
      if (!kept.some((hit) => hit.doc.location === page) && known.has(page)) {
        const own = hits.find((hit) => hit.doc.location === page);
        kept.push(own || { doc: known.get(page), score: 0, words: new Set() });
      }
      return kept.map((hit) => item(hit));
    });
  }

  function item({ doc, score, words }) {
    return {
      location: doc.location,
      title: marked(doc.title, words),
      text: score ? why(doc, words) : "",
      score,
      terms: {},
    };
  }

  const escaped = (text) =>
    text.replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign]);

  const isHit = (word, words) =>
    words.has(stem(word)) || word.split(/[_.]/).some((part) => words.has(stem(part)));

  function marked(text, words) {
    return text.split(/([\p{L}\p{N}]+(?:[_.][\p{L}\p{N}]+)*)/u)
      .map((part, at) => (at % 2 && isHit(part, words) && !STOP.has(part.toLowerCase())
        ? `<mark data-md-highlight>${escaped(part)}</mark>` : escaped(part)))
      .join("");
  }

  /* Where the words stand: another name, the prose around them, or a table. */
  function why(doc, words) {
    const names = (doc.names || []).filter((name) => tokenize(name).some((word) => isHit(word, words)));
    const also = names.length && !isHit(doc.title, words)
      ? `<p>Also called: ${names.slice(0, 3).map((name) => marked(name, words)).join(", ")}.</p>` : "";
    const shown = snippet(doc.prose || "", words);
    const table = tokenize(doc.rest || "").filter((word) => isHit(word, words));
    const inTable = !shown.hit && !also && table.length
      ? `<p>In a table or in code: ${marked([...new Set(table)].slice(0, 4).join(", "), words)}.</p>` : "";
    return also + inTable + (shown.text ? `<p>${marked(shown.text, words)}</p>` : "");
  }

  /* The sentence with the most hits, and what follows. */
  function snippet(prose, words) {
    const sentences = prose.match(/[^.!?]+(?:[.!?](?=\S)[^.!?]*)*[.!?]?\s*/g) || [""];
    const hits = sentences.map((text) => tokenize(text).filter((word) => isHit(word, words)).length);
    const best = hits.indexOf(Math.max(...hits));
    const text = sentences.slice(best).join("").trim();
    const cut = text.length > SNIPPET ? `${text.slice(0, SNIPPET).replace(/\s+\S*$/, "")} …` : text;
    return { text: best ? `… ${cut}` : cut, hit: hits[best] > 0 };
  }

  /* The top of the site; opened as a file, the page runs this in a frame without an address. */
  function top() {
    const own = typeof document === "undefined"
      ? self.location.href : document.querySelector("script[src]").src;
    return new URL("../../", own);
  }

  let given = [];
  let made = null;

  async function load() {
    await importScripts(new URL("assets/vendor/minisearch/dist/umd/index.js", top()).href);
    const docs = given.length
      ? given : await (await fetch(new URL("search/documents.json", top()))).json();
    return make(docs);
  }

  async function answer({ type, data }) {
    if (type === SETUP) {
      given = data.docs;
      return { type: READY };
    }
    if (type !== QUERY) throw new TypeError("Invalid message type");
    if (!data.trim()) return { type: RESULT, data: { items: [] } };
    made = made || load();
    return { type: RESULT, data: search(await made, data) };
  }

  return { answer, make, search, stem };
})();

if (typeof module === "undefined") {
  addEventListener("message", async (event) => postMessage(await hypermlaSearch.answer(event.data)));
} else {
  module.exports = hypermlaSearch;
}
