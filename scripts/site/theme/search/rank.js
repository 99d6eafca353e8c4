// Finds pages: lunr's scores, after which pages that tell a user how to do something go before references, and text that has all the words, or
// the words in this order, before text that has some. The browser (main.js) and the site's test (tests/e2e/site_search.js) call it.
(function (root) {
  'use strict';
  const apart = /[^\p{L}\p{N}.]+/u;
  const wordsOf = function (text) {
    return text.toLowerCase().split(apart).map(function (word) { return word.replace(/^\.+|\.+$/g, ''); }).filter(Boolean);
  };
  // References have a section for each flag, header and name, so that they would fill the first places of most answers; one who types the
  // dashes looks for the flag. The questions of the FAQ name many things that other pages treat.
  function weight(location, query) {
    if (/^(reference|changelog|design-notes|architecture|contributing)/.test(location)) return 0.1;
    if (/^commands/.test(location)) return query.startsWith('--') ? 2 : 0.1;
    if (/^(glossary|limits|notebooks)/.test(location)) return 0.3;
    return /^faq/.test(location) ? 0.6 : 1;
  }
  // Returns the documents of an index that have some of a query's words, the best first. `query` may be any text.
  function searcher(lunr, documents) {
    const byLocation = new Map();
    lunr.tokenizer.separator = apart;
    const index = lunr(function () {
      this.ref('location');
      this.field('title', {boost: 10});
      this.field('text');
      for (const each of documents) {
        // A document's own words are looked for as whole words: a space on each side.
        byLocation.set(each.location, Object.assign({said: ' ' + wordsOf(each.text).join(' ') + ' ', named: ' ' + wordsOf(each.title).join(' ') + ' '}, each));
        this.add(each);
      }
    });
    return function (query) {
      const words = wordsOf(query).filter(function (word) { return word.length > 1; });
      if (words.length === 0) return [];
      const found = index.query(function (clauses) {
        for (const word of words) {
          clauses.term(word, {boost: 10, usePipeline: true});
          clauses.term(word, {wildcard: lunr.Query.wildcard.TRAILING, usePipeline: false});
        }
      });
      const phrase = ' ' + words.join(' ') + ' ';
      const scored = found.map(function (each) {
        const page = byLocation.get(each.ref);
        const all = words.every(function (word) { return (page.named + page.said).includes(' ' + word); });
        const score = each.score * weight(page.location, query.trim()) * (all ? 4 : 1) * (page.named.includes(phrase) ? 4 : page.said.includes(phrase) ? 2 : 1);
        return {page: page, score: score};
      });
      scored.sort(function (a, b) { return b.score - a.score; });
      return scored.map(function (each) { return each.page; });
    };
  }
  root.spillwaySearcher = searcher;
})(typeof window === 'undefined' ? globalThis : window);
