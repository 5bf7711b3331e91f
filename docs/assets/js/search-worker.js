/* The search: the theme's worker, replaced by one that asks MiniSearch. See generators/build/searching.py
   for what it searches, and the theme's SearchMessageType for the messages. */
"use strict";

const hypermlaSearch = (() => {
  const SETUP = 0, READY = 1, QUERY = 2, RESULT = 3;
  const STOP = new Set(("a am an and any are as at be but by can could do does done for from get give had " +
    "has have how i if in inside into is it its me my no not of on only or our own should some than that " +
    "the then there they this to too was we were what when which who why will with would you your").split(" "));
  /* What people say around the subject of a sentence; in a query of few words it may be the subject. */
  const FILLER = new Set(("about actually after again all almost already also always another anybody anything because " +
    "been before being between both call came change clear come complain course else enough even ever every everything " +
    "exact explain few find fine first found full give go going good got guess happen hand hear help here itself just " +
    "keep kind know last least left less let like line little long look lot made make many matter maybe mean might mine " +
    "moment more most much must need never new next nobody nothing now off often ok old once one other over part people " +
    "perhaps place please point possible pretty probably put quite rather really say see seem shall show side simple " +
    "simply since so some somebody someone something soon sort still stuff such suppose sure take tell thank them these " +
    "thing think those though thought through till time together told touch try turn two under understand until up us " +
    "use used very want way whether while whole without wonder word work worth yes yet").split(" "));
  const FIELDS = { title: 6, names: 9, page: 2, prose: 1, rest: 0.4 };
  /* How much a word counts that means the same as one that was asked for. */
  const ALIKE = 0.6;
  /* How much more a hit counts that is called exactly what was asked for. */
  const EXACT = 12;
  /* A query of so many words, two of which say nothing, is a sentence. */
  const SENTENCE = 7;
  /* How much a word of a sentence counts that says nothing: only in what a page is called. */
  const FILLS = 0.1;
  /* How much a word of a sentence counts, by where a section has it. */
  const PLACES = { names: 1, title: 1, page: 0.8, prose: 0.5, rest: 0.2 };
  /* How much it adds that a sentence has all words of a page's name, or of a section's. */
  const NAMED = 6, HEADED = 3;
  /* Pages that differ in a name or a number: of each family two come among the first. */
  const FAMILIES = [
    /^(kernels\/[^/]+\/[^/]+\/[^/]+\/)/, /^(?:devices|mla|results)\/(?:nvidia|amd)-/,
    /^(learning\/examples|records|reference|skills|api\/\w+)\//,
  ];
  const TOGETHER = 2, FIRST = 8;
  /* A hit on a long page opens at the section whose score is such a share of the page's own. */
  const OPENS = 0.3;
  /* The same on a page of entries, whose own names are many. Asked by one of its names that was left out of
     the index, 160 of 321 hits open at the entry so and 38 at the top; at 0.3 it was 133 and 100. */
  const LISTING = /^api\//, LISTING_OPENS = 0.05;
  /* The same on a page whose top is an answer, see `_ON_TOP` in searching.py. */
  const ANSWER_OPENS = 1;
  const SHOWN = 30;
  const SNIPPET = 180;

  const stems = new Map();

  /* One spelling per word: American, singular, without -ing and -ed. */
  function stem(word) {
    if (!stems.has(word)) stems.set(word, stemmed(word));
    return stems.get(word);
  }

  function stemmed(word) {
    let term = word.toLowerCase().replace(/is(ation|e|ed|er|ing)(s?)$/, "iz$1$2")
      .replace(/^colour/, "color").replace(/^neighbour/, "neighbor").replace(/entre$/, "enter");
    if (term.length > 4) term = term.replace(/ies$/, "y").replace(/([^s])s$/, "$1");
    if (term.length > 6) term = term.replace(/(?:ization|izing|ized|izer)$/, "ize");
    if (term.length > 5) term = term.replace(/([a-z]{3,})(?:ing|ed)$/, "$1");
    return term.length > 4 ? term.replace(/e$/, "") : term;
  }

  const FILLING = new Set([...FILLER].map(stem));

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

  const plain = (text) => tokenize(text).map(process).filter(Boolean).join(" ");
  const pageOf = (location) => location.split("#")[0];

  /* The index over sections; the first entry is no section but words that mean the same. */
  function make(docs) {
    /* Words of the section that is being added. */
    let words = new Set();
    const index = new MiniSearch({
      fields: Object.keys(FIELDS),
      idField: "location",
      tokenize,
      processTerm: (word, field) => {
        const term = process(word);
        if (term && field) words.add(term);
        return term;
      },
      extractField: (doc, name) =>
        name === "names" ? (doc.names || []).join(" ; ") : doc[name],
    });
    const known = new Map(docs.filter((doc) => !doc.alike).map((doc) => [doc.location, doc]));
    /* In how many sections each word stands, and what each section is called. */
    const commonness = new Map(), names = new Map();
    for (const [id, doc] of known) {
      words = new Set();
      index.add(doc);
      for (const term of words) commonness.set(term, (commonness.get(term) || 0) + 1);
      const own = [doc.title, ...(doc.names || [])].map(plain);
      const heads = id.includes("#");
      names.set(id, own.map((name, at) => (
        { name, words: new Set(name.split(" ")), adds: heads && at === 0 ? HEADED : NAMED })));
    }
    const alike = new Map();
    for (const group of docs.flatMap((doc) => doc.alike || [])) {
      const terms = group.map(process).filter(Boolean);
      for (const term of terms) alike.set(term, [...new Set([...(alike.get(term) || []), ...terms])]);
    }
    return { index, known, alike, commonness, names };
  }

  /* What a query asks for: its words, each once, with those that mean the same, and how much it counts. */
  function asked({ known, alike, commonness }, query) {
    const wanted = plain(query);
    const own = [...new Set(wanted.split(" "))];
    const all = tokenize(query);
    const telling = all.filter((word) => process(word) && !FILLING.has(stem(word)));
    const sentence = all.length >= SENTENCE && all.length - telling.length >= 2 && telling.length > 0;
    const rarity = (term) => Math.log(1 + known.size / (1 + (commonness.get(term) || known.size / 50)));
    const terms = own.map((term) => {
      const any = [term, ...(alike.get(term) || [])];
      const part = sentence && FILLING.has(term) ? FILLS : 1;
      return { term, any, part, weight: rarity(term) * part };
    });
    return { wanted, terms, sentence, rarity };
  }

  function search(made, query) {
    const { index, known, commonness } = made;
    const question = asked(made, query);
    if (!question.wanted) return { items: [] };
    const { terms, sentence } = question;
    const parts = new Map();
    for (const { term, any, part } of terms) {
      for (const word of any) parts.set(word, Math.max(parts.get(word) || 0, part * (word === term ? 1 : ALIKE)));
    }
    const own = new Set(terms.map(({ term }) => term));
    const last = terms[terms.length - 1].term;
    const found = index.search([...parts.keys()].filter((term) => parts.get(term) > FILLS).join(" "), {
      tokenize: (text) => text.split(" "),
      processTerm: (term) => term,
      boost: FIELDS,
      boostTerm: (term) => parts.get(term),
      prefix: (term) => term === last && term.length > 2,
      fuzzy: (term) => (own.has(term) && term.length > 5 && !commonness.has(term) ? 0.17 : false),
      weights: { prefix: 0.5, fuzzy: 0.2 },
      boostDocument: (id) => {
        const { weight, told = weight } = known.get(id);
        return sentence ? told * (id.includes("#") ? 0.9 : 1) : weight * (id.includes("#") ? 0.8 : 1);
      },
    });
    return { items: grouped(ranked(found, made, question), known), suggest: [] };
  }

  /* Hits that have all words come first, those that are called so before them. What a section lacks
     and its page has counts for half; of a sentence, which no section has whole, for less. */
  function ranked(found, { known, names }, { wanted, terms, rarity, sentence }) {
    const all = terms.reduce((sum, { weight }) => sum + weight, 0);
    const any = new Set(terms.flatMap((term) => term.any));
    /* The part of the question that is there; `has` says of a word how well. */
    const share = (has) => terms.reduce(
      (sum, term) => sum + term.weight * Math.max(...term.any.map((word) => Number(has(word) || 0))), 0) / all;
    const rare = (words) => words.reduce((sum, word) => sum + rarity(word), 0);
    /* How well a name is the question: by the words that both have, of those that either has. */
    function fit({ name, words, adds }) {
      if (name === wanted) return sentence ? (1 + NAMED) ** 2 : EXACT;
      const here = [...words].filter((word) => any.has(word));
      if (!here.length) return 1;
      const shared = share((word) => words.has(word)), precise = rare(here) / (rare([...words]) || 1);
      const both = EXACT * (shared * precise) ** 3;
      if (sentence) return Math.max(both, (1 + adds * precise ** 2 * shared ** 0.25) ** 2);
      return Math.max(both, name.startsWith(wanted) ? 1.5 : 1);
    }
    const onPage = new Map();
    for (const { id, queryTerms } of found) {
      const page = pageOf(id);
      if (!onPage.has(page)) onPage.set(page, new Set());
      for (const term of queryTerms) onPage.get(page).add(term);
    }
    const shares = new Map([...onPage].map(([page, has]) => [page, share((word) => has.has(word))]));
    function whole({ id, queryTerms, match }) {
      const page = shares.get(pageOf(id));
      if (!sentence) return (share((word) => queryTerms.includes(word)) + page) / 2;
      const place = (word) => match[word] && Math.max(...match[word].map((field) => PLACES[field]));
      return 0.7 * share(place) + 0.3 * page;
    }
    const scored = found.map((hit) => {
      const exact = Math.max(...names.get(hit.id).map(fit));
      return { doc: known.get(hit.id), score: hit.score * whole(hit) ** 3 * exact, words: new Set(hit.terms) };
    });
    return scored.sort((one, other) => other.score - one.score);
  }

  /* Hits by page, as the theme shows them: the page itself, then its sections. */
  function grouped(scored, known) {
    const pages = new Map();
    for (const hit of scored) {
      const page = hit.doc.location.split("#")[0];
      if (!pages.has(page) && pages.size === SHOWN) continue;
      pages.set(page, [...(pages.get(page) || []), hit]);
    }
    return apart([...pages]).map(([page, hits]) => {
      const opened = inside(page, hits, known);
      if (opened) return opened;
      const kept = hits.slice(0, 4);
      if (!kept.some((hit) => hit.doc.location === page) && known.has(page)) {
        const own = hits.find((hit) => hit.doc.location === page);
        kept.push(own || { doc: known.get(page), score: 0, words: new Set() });
      }
      return kept.map((hit) => item(hit));
    });
  }

  /* Hits on a long page, where a section has the words: it stands in place of the page, which would open
     at its top, screens away. The theme heads a group without a page by its last item, without an excerpt. */
  function inside(page, hits, known) {
    if (!known.has(page) || !known.get(page).long) return null;
    const own = hits.find(({ doc }) => doc.location === page);
    const sections = hits.filter(({ doc }) => doc.location !== page);
    const least = known.get(page).answers ? ANSWER_OPENS : LISTING.test(page) ? LISTING_OPENS : OPENS;
    if (!sections.length || sections[0].score < least * (own ? own.score : 0)) return null;
    const shown = sections.slice(0, 4).map((hit) => item(hit));
    const head = { ...shown[0], title: marked(known.get(page).title, sections[0].words), text: "" };
    return [...shown, head];
  }

  /* The same pages; those beyond two of a family stand after the first ones. */
  function apart(pages) {
    const family = (page) => FAMILIES.map((form, at) => form.exec(page) && `${at} ${form.exec(page)[1]}`).find(Boolean);
    const first = [], later = [], count = new Map();
    for (const entry of pages) {
      const own = family(entry[0]);
      const many = (count.get(own) || 0) + 1;
      count.set(own, many);
      (own && many > TOGETHER && first.length < FIRST ? later : first).push(entry);
    }
    return [...first.slice(0, FIRST), ...later, ...first.slice(FIRST)];
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

  let waiting = null;

  /* Answers a message by `post`. The theme asks at every key; of the questions that came while the index
     was made or another one was answered, the last alone is: answers to a question that is no longer in
     the field would take its place for seconds. */
  async function receive(message, post) {
    /* An empty field, as it is when it is opened, needs no index. */
    if (message.type !== QUERY || (waiting === null && !message.data.trim())) {
      post(await answer(message));
      return;
    }
    const due = waiting !== null;
    waiting = message;
    if (due) return;
    try {
      made = made || load();
      await made;
      await new Promise((next) => setTimeout(next));
    } finally {
      [message, waiting] = [waiting, null];
    }
    post(await answer(message));
  }

  return { receive, make, search, stem };
})();

if (typeof module === "undefined") {
  addEventListener("message", (event) => hypermlaSearch.receive(event.data, (found) => postMessage(found)));
} else {
  module.exports = hypermlaSearch;
}
