/* The search: the theme's worker, replaced by one that asks MiniSearch. See generators/build/searching.py
   for what it searches, and the theme's SearchMessageType for the messages. */
"use strict";

const hypermlaSearch = (() => {
  const SETUP = 0, READY = 1, QUERY = 2, RESULT = 3;
  const STOP = new Set(("a an and are as at be by can do does for from how i in is it my of on or " +
    "that the this to was what when which why with not").split(" "));
  const FIELDS = { title: 6, names: 9, page: 2, prose: 1, rest: 0.4 };
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

  /* Words; a name such as mla_var6_plus counts whole and in its parts. */
  function tokenize(text) {
    const words = text.match(/[\p{L}\p{N}]+(?:[_.][\p{L}\p{N}]+)*/gu) || [];
    return words.flatMap((word) => (/[_.]/.test(word) ? [word, ...word.split(/[_.]/)] : [word]));
  }

  function make(docs) {
    const index = new MiniSearch({
      fields: Object.keys(FIELDS),
      idField: "location",
      tokenize,
      processTerm: process,
      extractField: (doc, name) =>
        name === "names" ? (doc.names || []).join(" ; ") : doc[name],
    });
    const known = new Map(docs.map((doc) => [doc.location, doc]));
    index.addAll([...known.values()]);
    return { index, known };
  }

  const plain = (text) => tokenize(text).map(process).filter(Boolean).join(" ");

  function search({ index, known }, query) {
    const wanted = plain(query);
    if (!wanted) return { items: [] };
    const terms = new Set(wanted.split(" "));
    const found = index.search(query, {
      boost: FIELDS,
      prefix: (term, at, all) => at === all.length - 1 && term.length > 2,
      fuzzy: (term) => (term.length > 5 ? 0.17 : false),
      weights: { prefix: 0.5, fuzzy: 0.2 },
      boostDocument: (id) => known.get(id).weight * (id.includes("#") ? 0.8 : 1),
    });
    const scored = found.map((hit) => rank(hit, known.get(hit.id), terms, wanted));
    scored.sort((one, other) => other.score - one.score);
    return { items: grouped(scored, known, query), suggest: [] };
  }

  /* Hits that have all words come first, those that are called so before them. */
  function rank(hit, doc, terms, wanted) {
    const share = new Set(hit.queryTerms).size / terms.size;
    const called = [doc.title, ...(doc.names || [])].map(plain);
    const exact = called.includes(wanted) ? 12 : called.some((name) => name.startsWith(wanted)) ? 1.5 : 1;
    return { doc, score: hit.score * share ** 6 * exact, words: new Set(hit.terms) };
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
