// Search in this window, over an index that comes as a script: so it works without a server, when pages are opened as files.
(function () {
  'use strict';
  function load(name) {
    return new Promise(function (done, failed) {
      const script = document.createElement('script');
      script.src = base_url.replace(/\/?$/, '/') + 'search/' + name;
      script.onload = done;
      script.onerror = failed;
      document.head.appendChild(script);
    });
  }
  let ready;
  function index() {
    if (!ready) {
      ready = Promise.all([load('lunr.js'), load('index.js'), load('rank.js')]).then(function () {
        return spillwaySearcher(lunr, spillwayIndex.docs);
      });
    }
    return ready;
  }
  // The words around the first that was sought.
  function excerpt(text, words) {
    const low = text.toLowerCase();
    const at = Math.max(0, Math.min.apply(null, words.map(function (word) { return low.indexOf(word); }).filter(function (i) { return i >= 0; }).concat(text.length)));
    const begin = at < text.length ? Math.max(0, at - 60) : 0;
    return (begin > 0 ? '… ' : '') + text.slice(begin, begin + 200) + (begin + 200 < text.length ? ' …' : '');
  }
  function show(results, found, words) {
    results.replaceChildren();
    for (const page of found.slice(0, 30)) {
      const article = document.createElement('article');
      const link = document.createElement('a');
      link.href = base_url.replace(/\/?$/, '/') + page.location;
      link.textContent = page.title || page.location;
      const heading = document.createElement('h3');
      heading.appendChild(link);
      const said = document.createElement('p');
      said.textContent = excerpt(page.text, words);
      article.append(heading, said);
      results.appendChild(article);
    }
    if (found.length === 0) results.textContent = results.dataset.noResultsText || 'No results';
  }
  function search() {
    const input = document.getElementById('mkdocs-search-query');
    const results = document.getElementById('mkdocs-search-results');
    const words = input.value.toLowerCase().split(/[^\p{L}\p{N}.]+/u).filter(function (word) { return word.length > 1; });
    if (words.length === 0) return results.replaceChildren();
    index().then(function (find) { show(results, find(input.value), words); });
  }
  function begin() {
    const input = document.getElementById('mkdocs-search-query');
    if (!input) return;
    input.addEventListener('input', search);
    const asked = new URLSearchParams(window.location.search).get('q');
    if (asked) {
      input.value = asked;
      search();
    }
  }
  if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', begin);
  else begin();
})();
