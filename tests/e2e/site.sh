#!/usr/bin/env bash
# site.sh BUILD PYTHON: builds the site and looks at what was made: every page of docs/ is there and reached, notebooks have their results,
# references what they are of, nothing asks anybody outside for anything, and the search finds what users type (site_search.js, with Node.js).
set -euo pipefail
build=$1 python=$2
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache
mkdir "$work/elsewhere"
ln -s "$build" "$work/elsewhere/build"  # names of folders are those of where the script is called
(cd "$work/elsewhere" && PYTHON=$python "$source/scripts/site.sh" ../site build)
node "$source/tests/e2e/site_search.js" "$work/site"
PYTHONPATH=$build/python "$python" - "$source" "$work/site" <<'PYTHON'
import html.parser
import json
import pathlib
import re
import sys

import spillway

source, site = map(pathlib.Path, sys.argv[1:])
text = {page.relative_to(site).as_posix(): page.read_text() for page in site.rglob("*.html")}
index = text["index.html"]
for page in (source / "docs").glob("*.md"):
    assert f"{page.stem}.html" in text and f'"{page.stem}.html"' in index, f"{page.name}: no page, or none that leads there"


class Requests(html.parser.HTMLParser):
    """What a browser fetches without being told to, and where links of this site lead."""

    def __init__(self, page):
        super().__init__()
        self.page, self.fetched, self.links = page, [], []

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        if tag == "a":
            self.links.append(named.get("href") or "")
        elif tag == "link" and named.get("rel") in ("canonical", "prev", "next"):
            pass
        else:
            self.fetched += [value for key, value in attributes if key in ("src", "href", "data", "poster", "srcset", "action") and value]


outside = re.compile(r"^(https?:)?//|^https?:")
for page, words in text.items():
    requests = Requests(page)
    requests.feed(words)
    assert not [each for each in requests.fetched if outside.match(each)], (page, requests.fetched)
    for link in requests.links + requests.fetched:
        if not link or re.match(r"^(#|[a-z]+:)", link) or page == "404.html":
            continue
        target = (site / page).parent / re.split("[?#]", link)[0]
        assert target.exists() or page.startswith("reference/cpp/"), f"{page}: {link} leads nowhere"
for style in site.rglob("*.css"):
    assert not re.search(r"""(url\(|@import)\s*["']?(https?:)?//""", style.read_text()), style
for script in [each for each in site.rglob("*.js") if "reference/cpp" not in str(each)]:
    assert not re.search(r"""(fetch|open|import|importScripts|getScript)\(["'](https?:)?//""", script.read_text()), script

reference = text["reference/python.html"]
for name in [each for each in vars(spillway) if not each.startswith("_") and getattr(getattr(spillway, each), "__module__", None) and each in spillway.__dir__()]:
    value = getattr(spillway, name)
    if isinstance(value, type(spillway)):
        continue
    assert f'id="spillway.{name}"' in reference, f"{name}: not in the reference of Python"
assert reference.count("Trains to the last step") == 1
cpp = text["reference/cpp.html"]
for header in ["tensor.h", "tape.h", "trainer.h", "optimizer.h"]:
    assert f">{header}<" in cpp, header
for notebook in (source / "docs/notebooks").glob("*.ipynb"):
    shown = text[f"notebooks/{notebook.stem}.html"]
    assert ('class="output"' in shown) != ("It was not run when this page was made" in shown), notebook
    assert notebook.stem == "torch" or 'class="output"' in shown, f"{notebook} needs only what the site needs"
    assert (site / f"notebooks/{notebook.name}").exists(), notebook
assert "the same bits" in text["notebooks/fits.html"]
sought = json.loads((site / "search/search_index.json").read_text())["docs"]
assert any(each["location"].endswith("commands.html#--lora") for each in sought), "no heading of a flag has the anchor that GitHub gives it"
assert any("zb-v" in each["text"] for each in sought) and (site / "search/index.js").read_text().startswith("var spillwayIndex = {")
print(len(text), "pages,", len(sought), "sections to search")
PYTHON
