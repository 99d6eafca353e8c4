"""What MkDocs does not do by itself for scripts/site.sh: pages that are not in docs/, and search without a server.

README, CONTRIBUTING and CHANGELOG become pages; so do the notebooks, as they were executed, and the references of Python (from what the
package exports) and of C++ (Doxygen's pages, with a list of the headers). SPILLWAY_SITE_NOTEBOOKS and SPILLWAY_SITE_DOXYGEN name where
scripts/site.sh left the executed notebooks and Doxygen's output, SPILLWAY_SITE_PACKAGES the folder of the Python package.
"""

import ast
import html
import json
import os
import pathlib
import re
import xml.etree.ElementTree as xml

from mkdocs.structure.files import File

root = pathlib.Path(__file__).resolve().parents[2]


def on_config(config):
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [os.environ["SPILLWAY_SITE_PACKAGES"]]
    return config


def anchor(title, separator):
    """The anchor that GitHub makes of a heading, so that a link to it leads there in both."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", separator)


def on_files(files, config):
    def add(page, content):
        files.append(File.generated(config, page, content=content))

    for name, page in [("README", "index"), ("CONTRIBUTING", "contributing"), ("CHANGELOG", "changelog")]:
        add(f"{page}.md", in_docs((root / f"{name}.md").read_text()))
    for notebook in sorted(pathlib.Path(os.environ["SPILLWAY_SITE_NOTEBOOKS"]).glob("*.ipynb")):
        add(f"notebooks/{notebook.stem}.md", notebook_page(notebook))
    add("reference/python.md", python_page(pathlib.Path(os.environ["SPILLWAY_SITE_PACKAGES"]) / "spillway"))
    doxygen = pathlib.Path(os.environ["SPILLWAY_SITE_DOXYGEN"])
    add("reference/cpp.md", cpp_page(doxygen / "spillway.tag"))
    for path in sorted((doxygen / "html").rglob("*")):
        if path.is_file():
            files.append(File(f"reference/cpp/{path.relative_to(doxygen / 'html')}", doxygen / "html", config.site_dir, False))
            files.get_file_from_path(f"reference/cpp/{path.relative_to(doxygen / 'html')}").abs_src_path = str(path)
    for picture in (root / "bench/results").glob("*.svg"):
        add(f"bench/results/{picture.name}", picture.read_bytes())
    return files


def in_docs(text):
    """Links of a page of the root, as a page of docs/ has them."""
    for name in ["CONTRIBUTING", "CHANGELOG"]:
        text = text.replace(f"]({name}.md)", f"]({name.lower()}.md)")
    return text.replace("](docs/", "](")


def on_page_markdown(markdown, page, config, files):
    if not page.file.src_uri.startswith("notebooks/"):
        markdown = markdown.replace(".ipynb)", ".md)")
    return markdown.replace("](../bench/results/", "](bench/results/").replace("](../README.md", "](index.md")


# ---- notebooks


def notebook_page(path):
    notebook = json.loads(path.read_text())
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            parts.append(f"```python\n{source}\n```")
            parts += [output(each) for each in joined(cell["outputs"])]
        if len(parts) == 1:
            parts.append(f"The notebook itself: [{path.name}]({path.name}).")
            if all(not cell.get("outputs") for cell in notebook["cells"]):
                needed = " and ".join(notebook["metadata"]["needs"])
                parts.append(f"It was not run when this page was made, because {needed} were not installed, so it has no results here.")
    return "\n\n".join(parts) + "\n"


def joined(outputs):
    """A stream comes in pieces."""
    whole = []
    for each in outputs:
        if whole and each["output_type"] == "stream" and whole[-1]["output_type"] == "stream":
            whole[-1] = {**whole[-1], "text": "".join(whole[-1]["text"]) + "".join(each["text"])}
        else:
            whole.append(each)
    return whole


def output(each):
    if each["output_type"] == "stream":
        return shown(html.escape("".join(each["text"])))
    data = each["data"]
    if "text/html" in data:
        # One block without an empty line in it: Markdown ends a block of HTML there.
        return '<div class="output">' + "".join(data["text/html"]).replace("\n", "&#10;") + "</div>"
    return shown(html.escape("".join(data["text/plain"])))


def shown(text):
    return '<div class="output"><pre>' + text.rstrip("\n").replace("\n", "&#10;") + "</pre></div>"


# ---- references


def exported(file):
    """The names that a package's __init__.py imports from its modules, by module; those of `from . import x` under None."""
    names = {}
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            for alias in node.names:
                if not alias.name.startswith("_"):
                    names.setdefault(node.module, []).append(alias.asname or alias.name)
    return names


def python_page(package):
    """Every name that the package exports, by the file that it comes from; operations by their names."""
    names = exported(package / "__init__.py")
    names.pop(None)  # the packages nn and optim
    compiled = names.pop("_core")
    layers = [name for module, group in exported(package / "nn" / "__init__.py").items() if module is not None for name in group]
    schedulers = [node.name for node in ast.parse((package / "optim" / "lr_scheduler.py").read_text()).body
                  if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    groups = [
        ("Training", ["Trainer", "TrainingResult", *[name for name in compiled if name.endswith("Event")], "from_training_arguments", "write_rows", "write_tokens"]),
        ("Plans and other commands", names.pop("reports")),
        ("Models and tensors", ["Model", "Tokenizer", "Block", "Parameter", "Batch", "Tensor", "no_grad", "set_threads", "get_threads"]),
        ("Modules", [f"nn.{name}" for name in layers if name not in ("Parameter",)]),
        ("Optimizers", sorted(names.pop("optim"), key=lambda name: (name != "Optimizer", name))),
        ("Schedules", [f"optim.lr_scheduler.{name}" for name in schedulers]),
    ]
    placed = {name for _, group in groups for name in group}
    groups += [("Operations", [name for name in compiled if name not in placed]), ("Errors", names.pop("errors"))]
    rest = {name for group in names.values() for name in group} - placed
    if rest:
        raise ValueError(f"hooks.py: expected every exported name in a group, got {', '.join(sorted(rest))} in none: add them to python_page")
    lines = ["# Python reference", "What `import spillway` gives. [Spillway from Python](../python.md) tells how they go together."]
    for title, group in groups:
        lines.append(f"## {title}")
        lines += [f"::: spillway.{name}" for name in group]
    return "\n\n".join(lines) + "\n"


def cpp_page(tags):
    """The headers, room by room, each with what its banner says and a link to Doxygen's page of it."""
    lines = ["# C++ reference", "What the headers say: [class by class](cpp/annotated.html), [by name](cpp/globals.html), and here room by room, in the "
             "order of their arrows. [Spillway from C++](../library.md) tells where to begin."]
    headers = {}
    for file in xml.parse(tags).getroot().iter("compound"):
        if file.get("kind") == "file" and file.findtext("name").endswith(".h"):
            path = pathlib.Path(file.findtext("path"), file.findtext("name"))
            headers[str(path.relative_to(root))] = file.findtext("filename")
    order = [line.split()[1] for line in pathlib.Path(os.environ["SPILLWAY_SITE_ROOMS"]).read_text().splitlines()]
    for room in order:
        inside = sorted(path for path in headers if os.path.dirname(path) == room)
        if inside:
            lines += [f"## {room.removeprefix('src/')}", "| header | what it is |\n|---|---|\n" + "\n".join(row(path, headers[path]) for path in inside)]
    return "\n\n".join(lines) + "\n"


def row(path, page):
    banner = []
    for line in (root / path).read_text().splitlines():
        if not line.startswith("//"):
            break
        banner.append(line.removeprefix("//").strip())
    first = re.split(r"(?<=[.:])\s", " ".join(banner), maxsplit=1)[0].rstrip(":")
    said = html.escape(first, quote=False).replace("|", "\\|").replace("*", "\\*").replace("_", "\\_").replace("[", "\\[")
    return f"| [`{os.path.basename(path)}`](cpp/{page if page.endswith('.html') else page + '.html'}) | {said} |"


# ---- search and colours


def on_post_build(config):
    """The index as a script too: a page that was opened as a file may not fetch one."""
    from pygments.formatters import HtmlFormatter

    site = pathlib.Path(config.site_dir)
    index = (site / "search/search_index.json").read_text()
    (site / "search/index.js").write_text(f"var spillwayIndex = {index};\n")
    light = HtmlFormatter(style="default").get_style_defs(".codehilite")
    dark = HtmlFormatter(style="github-dark").get_style_defs("[data-bs-theme=dark] .codehilite")
    (site / "css/code.css").write_text(f"{light}\n{dark}\n")
