#!/usr/bin/env python3
"""Compares chat templates with transformers: published styles over conversations, and thousands of random expressions and templates.

Needs transformers >= 5.24 and jinja2 >= 3.1.6 (`pip install transformers jinja2`, no torch) and the program render_chat
(`ninja -C BUILD render_chat`). Usage: chat_templates.py BUILD/tests/render_chat [count] [seed]
With --write instead of the program it writes tests/data/chat/styles.json (the templates there over style_conversations.json),
constructs.json (CONSTRUCTS below), expressions.json (a choice of random ones) and arithmetic.json (operations near where 64 bits end), which the repository's tests read. Set TZ=UTC.
"""
import datetime
import json
import pathlib
import random
import re
import subprocess
import sys
import warnings

from transformers.utils import chat_template_utils
from transformers.utils.chat_template_utils import _normalize_chat_messages, render_jinja_template

warnings.filterwarnings("ignore")
DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "chat"
NOW = 1753433100  # 25 July 2025, 08:45 UTC


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, tz)


chat_template_utils.datetime = FixedClock


def expected(case):
    """What transformers says: {"text", "spans"} or {"error"}."""
    variables = dict(case["variables"])
    try:
        messages = _normalize_chat_messages(case["messages"])
        texts, spans = render_jinja_template(
            [messages], tools=variables.pop("tools", None), documents=variables.pop("documents", None), chat_template=case["template"],
            return_assistant_tokens_mask=True, add_generation_prompt=case["add_generation_prompt"], **variables)
        text = texts[0]
        text.encode()
        return {"text": text, "spans": [[len(text[:a].encode()), len(text[:b].encode())] for a, b in apart([min(a, len(text)), min(b, len(text))] for a, b in spans[0])]}
    except Exception as error:  # whatever Python says
        return {"error": f"{type(error).__name__}: {error}"}


def apart(spans):
    """The same characters in spans that do not overlap: blocks within blocks and macros begin at the same place."""
    out = []
    for begin, end in spans:
        if out and begin < out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([begin, end])
    return out


class Program:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def __call__(self, case):
        self.process.stdin.write(json.dumps({**case, "now": NOW}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the program died of {json.dumps(case)}")
        return json.loads(line)


VARIABLES = {
    "n": 7, "neg": -3, "big": 2**40, "zero": 0, "half": 2.5, "tiny": 1e-7, "huge": 1e22, "third": 1 / 3, "yes": True, "no": False, "nothing": None,
    "s": "hello world", "u": "Grüße, 世界 😀!", "e": "", "ws": "  two\n lines\t ", "up": "ABC", "num": "42", "flt": " 3.25 ", "quote": "it's \"q\" \\ \n\x7f\u200b",
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "mixed": [1, "x", None, True, 2.5, [1], {"k": 1}], "empty": [], "ed": {},
    "tree": [{"n": 1, "kids": [{"n": 2, "kids": []}, {"n": 3}]}, {"n": 4, "kids": [{"n": 5}]}],
    "d": {"b": 1, "a": "x", "items": 5, "C": [1, 2]}, "msgs": [{"role": "user", "content": "hi", "n": 1}, {"role": "tool", "n": 2}, {"role": "user", "content": "é", "n": 0}],
}
NAMES = [*VARIABLES, "missing"]
SIGNS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
FILTERS = [
    "trim", "trim('h !')", "tojson", "tojson(indent=2)", "tojson(indent=0, sort_keys=true)", "tojson(ensure_ascii=true)", "tojson(separators=(',', ':'))", "length", "count",
    "join", "join(', ')", "join('-', attribute='role')", "upper", "lower", "title", "capitalize", "replace('l', 'LL')", "replace('', '.')", "replace('o', '0', 1)",
    "default('D')", "d('D', true)", "first", "last", "list", "map('upper') | list", "map(attribute='role') | list", "map(attribute='content', default='?') | join('|')",
    "select | list", "select('string') | list", "reject('none') | list", "select('gt', 1) | list", "selectattr('content') | list", "selectattr('role', 'equalto', 'user') | list",
    "rejectattr('content', 'defined') | map(attribute='role') | list", "sort", "sort(reverse=true)", "sort(case_sensitive=true)", "sort(attribute='n')",
    "sort(attribute='role,n') | map(attribute='n') | list", "unique | list", "reverse", "reverse | list", "items | list", "dictsort", "dictsort(by='value')", "dictsort(true, reverse=true)",
    "string", "int", "int(5)", "int(base=16)", "float", "float(1.5)", "abs", "round", "round(1)", "round(2, 'floor')", "round(1, 'ceil')", "sum", "sum(attribute='n')",
    "min", "max", "min(attribute='n')", "max(case_sensitive=true)", "indent", "indent(2, true)", "indent('> ', blank=true)", "batch(2) | list", "batch(2, 'x') | list", "slice(2) | list",
    "slice(3, 0) | list", "groupby('role')", "groupby('content', default='z') | list", "format(1, 2)", "wordcount", "truncate(5)", "truncate(6, true, '..')", "truncate(5, leeway=0)", "center(15)",
    "urlencode", "safe", "e", "escape", "forceescape", "safe", "e", "safe | upper", "e | replace('&', '<')", "e | indent(2)", "e | truncate(4, true, '<')", "safe | last", "safe | reverse",
    "safe | list", "map('e') | list", "map('safe') | join('<')", "safe | trim", "e | title", "e | string", "safe | tojson", "safe | format('<', 1)", "safe | center(20)", "join('<' | safe)",
    "default('<' | safe)", "replace(*['l', '<'])", "truncate(**{'length': 5, 'killwords': true})", "nosuchfilter",
]
MARKED = ["('<b>' | safe)", "('<' | e)", "(s | e)", "('%s|%r' | safe)", "('%s' | safe)", "('{} {!r}' | safe)", "('{:>4}' | safe)", "('%(k)s' | safe)", "(quote | e)", "('%d' | safe)", "('a <b>\nc' | safe)"]

TESTS = [
    "defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "boolean", "true", "false", "odd", "even", "divisibleby 3",
    "divisibleby(2)", "callable", "lower", "upper", "eq 7", "equalto('x')", "ne none", "in [1, 2, 'x']", "in 'hello'", "lt 3", "greaterthan(2)", "escaped", "sameas true", "sameas none", "filter", "test",
]
METHODS = [
    "strip()", "strip('h!d ')", "lstrip()", "rstrip()", "lstrip(' t')", "rstrip('ld!')", "split()", "split(' ')", "split('l')", "split('l', 1)", "split(none, 1)", "split(maxsplit=1)", "rsplit('o', 1)",
    "rsplit()", "rsplit(none, 1)", "splitlines()", "splitlines(true)", "startswith('he')", "startswith(('x', 'G'))", "endswith('d')", "endswith(('!', 'd'), 2)", "upper()", "lower()", "title()",
    "capitalize()", "replace('l', '')", "replace('', '-', 3)", "find('l')", "find('o', 5)", "rfind('l')", "rfind('l', 0, -3)", "index('w')", "rindex('l')", "count('l')", "count('')",
    "join(['a', 'b'])", "join('xyz')", "join(ls)", "isdigit()", "isalpha()", "isalnum()", "isspace()", "isupper()", "islower()", "isnumeric()", "zfill(5)", "zfill(15)", "ljust(13, '.')",
    "rjust(14)", "center(14, '*')", "removeprefix('hell')", "removesuffix('world')", "partition(' ')", "rpartition('l')", "format(1, x=2)", "get('a')", "get('zz')", "get('zz', 3)", "items()", "keys()",
    "values()", "items() | list", "keys() | list", "index(1)", "count(1)", "copy()", "join(['<', 1])", "replace('l', '<')", "center(14, '<')", "append(4)", "pop()", "update({})", "extend([1])", "nosuch()", "__class__", "role", "a", "items", "b", "0", "content", "n",
]
TEXTS = ["''", "'a'", "\"it's\"", "'{} {}'", "'%s=%d'", "'%5.2f|'", "'%-4s|'", "'x\\ny\\t\\u00e9\\x41'", "'ß straße'", "'ΑΣ Σ'", "'ǆ ŉ'", "'007'", "'-12'", "'0x1f'", "'1_000'", "'1e3'", "'inf'"]


class Generator:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def literal(self):
        r = self.r
        return r.choice([
            lambda: str(r.choice([0, 1, 2, 3, 5, 10, 100, 12345])), lambda: r.choice(["0.1", "1.0", "2.5", "1e3", "1e16", "123456789.125", "0x1F", "1_000", "3.0e-5"]),
            lambda: r.choice(TEXTS), lambda: r.choice(["true", "False", "none", "None"]), lambda: r.choice(["[]", "{}", "()", "(1,)", "[1, [2, 'x']]", "{'k': [1, 2.0], 2: none}", "('a', 'b')"]),
            lambda: f"range({r.randint(-2, 5)}, {r.randint(-3, 8)}, {r.choice([1, 1, 2, -1])})"])()

    def index(self):
        r = self.r
        part = lambda: r.choice(["", "0", "1", "-1", "2", "-2", "10", "-10", "none", "n"])
        return r.choice([f"[{r.choice(['0', '1', '-1', '5', 'n', 'true', '1.0'])}]", f"[{part()}:{part()}]", f"[{part()}:{part()}:{r.choice(['', '1', '2', '-1', '-2', '3'])}]",
                         "['a']", "['role']", "['items']", "[s]", "[none]", "['upper']"])

    def __call__(self, depth=3):
        r = self.r
        if depth <= 0:
            return r.choice(NAMES) if r.random() < 0.7 else self.literal()
        e = lambda: self(depth - 1 - (r.random() < 0.5))
        p = lambda: f"({e()})"
        marked = lambda: r.choice(MARKED)
        return r.choice([
            lambda: f"{marked()} {r.choice(['+', '%', '*', '~', '==', 'in'])} {p()}", lambda: f"{p()} {r.choice(['+', '%', '*', '~'])} {marked()}", lambda: f"{marked()}.{r.choice(METHODS)}", lambda: f"{marked()} | {r.choice(FILTERS)}",
            lambda: f"{marked()}{self.index()}", lambda: f"{marked()}.format({e()}, {e()})", lambda: f"{marked()}.join([{e()}, {marked()}])", lambda: f"[{marked()}, {e()}]",
            lambda: f"dict(*{p()})", lambda: f"dict(b=1, **{p()})", lambda: f"range(*{p()})", lambda: f"'{{}}{{}}'.format(*{p()})", lambda: f"'{{a}}'.format(**{p()})",
            lambda: f"{e()} {r.choice(SIGNS)} {e()}", lambda: f"{p()} {r.choice(SIGNS)} {p()}", lambda: f"{p()} {r.choice(SIGNS)} {p()} {r.choice(SIGNS)} {e()}",
            lambda: f"{p()} | {r.choice(FILTERS)}", lambda: f"{p()} | {r.choice(FILTERS)}", lambda: f"{r.choice(NAMES)} | {r.choice(FILTERS)}", lambda: f"{r.choice(NAMES)} | {r.choice(FILTERS)} | {r.choice(FILTERS)}",
            lambda: f"{p()} is {r.choice(['', 'not '])}{r.choice(TESTS)}", lambda: f"{p()}.{r.choice(METHODS)}", lambda: f"{r.choice(NAMES)}.{r.choice(METHODS)}", lambda: f"{r.choice(NAMES)}.{r.choice(METHODS)}",
            lambda: f"{r.choice(TEXTS)}.{r.choice(METHODS)}", lambda: f"{r.choice(NAMES)}{self.index()}", lambda: f"{p()}{self.index()}", lambda: f"not {e()}", lambda: f"-{p()}", lambda: f"{e()} if {e()} else {e()}", lambda: f"{e()} if {e()}",
            lambda: f"[{e()}, {e()}]", lambda: f"{{'k': {e()}, {r.choice(['1', 's', 'half', 'true'])}: {e()}}}", lambda: f"({e()}, {e()})", lambda: f"{r.choice(TEXTS)} % {p()}", lambda: f"{r.choice(TEXTS)} % ({e()}, {e()})",
            lambda: f"dict(a={e()}, b=2)", lambda: f"'%s' | format({e()})", lambda: f"'{{:>8}}|{{!r}}'.format({e()}, {e()})", lambda: f"loop.{r.choice(['index', 'first', 'last', 'length', 'revindex', 'previtem', 'nextitem'])}",
        ])()

    # Statements: white space and scopes.
    def block(self, depth=3):
        r = self.r
        text = lambda: r.choice(["a", "\n", " ", "  \n", "\n  ", "x y", "\t", "{ ", "}", "%", "\n\n", ""])
        tag = lambda inside: "{%" + r.choice(["-", "", "", "+"]) + " " + inside + " " + r.choice(["-", "", "", "+"]) + "%}"
        name = lambda: r.choice(["v", "w", "m", "l", "s", "ns.x", "v, w", "v, ns.x"])
        plain = lambda: r.choice(["v", "w", "m"])
        e = lambda: self(r.randint(0, 1)) if r.random() < 0.2 else r.choice(["v", "w", "v", "w", "ns.x", "s", "v is defined", "loop is defined", *(["loop.index", "loop.cycle('a', 'b')", "loop.changed(v)", "loop.depth", "j()", "c.next()", "c.current", "kwargs", "varargs", "mac(*l)", "m(**d)", "mac(*[1], b=v)", "'<' | e", "w | safe", "mac.arguments", "caller()", "m(1)", "mac(1, b=2)", "mac()"] if r.random() < 0.2 else [])])
        b = lambda: self.block(depth - 1)
        if depth <= 0:
            return text() + "{{" + r.choice(["-", ""]) + f" {e()} " + r.choice(["-", ""]) + "}}" + text()
        parts = []
        for _ in range(r.randint(1, 3)):
            parts.append(r.choice([
                text, lambda: text() + "{{" + r.choice(["-", ""]) + f" {e()} " + r.choice(["-", ""]) + "}}", lambda: tag(f"set {name()} = {e()}"),
                lambda: tag("with" + r.choice(["", " a=1", f" v={e()}, w=v", f" b={e()}"])) + b() + "{{ a }}{{ v }}" + tag("endwith"),
                lambda: tag("for v in " + r.choice(["[[1], [2, [3]]]", "[1]", "tree"]) + " recursive") + b() + r.choice(["{{ loop(v) if v is iterable and v is not string }}", "{{ loop.depth }}", "{{ loop(v.kids) if v.kids }}"]) + r.choice(["", tag("else") + b()]) + tag("endfor"),
                lambda: tag("print " + r.choice([f"{e()}, {e()}", e()])), lambda: tag("set j = joiner('<')") + tag("set c = cycler(1, 'x')") + b(),
                lambda: tag(f"macro {r.choice(['mac', 'm'])}({r.choice(['caller=none', 'a, caller=5', 'caller'])})") + b() + r.choice(["{{ caller() if caller is callable }}", ""]) + tag("endmacro") + tag("call m(1)") + b() + tag("endcall"),
                lambda: tag(f"set {r.choice(['v', 'ns.x', 'w'])}" + r.choice(["", " | upper", " | trim | replace('a', 'b')"])) + b() + tag("endset"),
                lambda: tag(f"if {e()}") + b() + r.choice(["", tag(f"elif {e()}") + b()]) + r.choice(["", tag("else") + b()]) + tag("endif"),
                lambda: tag(f"for {plain()} in {r.choice(['l', 'ls', 'msgs', 'empty', 'd', 'range(3)', 's', 'missing', 'd.items()'])}{r.choice(['', '', ' if ' + e()])}") + b()
                + r.choice(["", "", tag("if " + e()) + tag(r.choice(["break", "continue"])) + tag("endif") + b()]) + r.choice(["", tag("else") + b()]) + tag("endfor"),
                lambda: tag("macro mac(a=2, b=3)") + b() + "{{ a }}{{ b }}" + tag("endmacro") + "{{ mac() }}" + tag("for v in l") + "{{ mac(v) }}{{ loop.index }}" + b() + tag("endfor"),
                lambda: tag("for a, b in " + r.choice(["d.items()", "[(1, 2), (3, 4)]", "d | dictsort", "[[1, 2]]"])) + b() + "{{ a }}{{ b }}" + tag("endfor"),
                lambda: tag(f"macro {r.choice(['mac', 'm'])}({r.choice(['', 'a', 'a, b=1', 'a=v, b=w'])})") + b() + "{{ a }}{{ b }}" + r.choice(["", "", "", "", "", "{{ varargs }}", "{{ kwargs }}", "{{ caller() }}"]) + tag("endmacro"),
                lambda: tag(f"macro {r.choice(['mac', 'm'])}(a=3)") + "{{ caller(a) }}" + b() + tag("endmacro") + tag(f"call{r.choice(['', '(v)', '(v=1)'])} {r.choice(['mac', 'm'])}({r.choice(['', '1', 'a=2'])})") + b() + tag("endcall"), lambda: tag("filter " + r.choice(["upper", "trim", "indent(2) | upper"])) + b() + tag("endfilter"),
                lambda: tag("generation") + b() + tag("endgeneration"), lambda: "{#" + r.choice(["-", "", "+"]) + " c " + r.choice(["-", ""]) + "#}" + text(), lambda: tag("raw").replace("+%}", "%}") + "{{ x }}" + text() + tag("endraw"),
            ])())
        return "".join(parts)


def styles():
    """Every template over every conversation, with its name."""
    plain = json.loads((DATA / "conversations.json").read_text())["conversations"]
    asked = {name: {"messages": messages, "variables": {"bos_token": "<s>", "eos_token": "</s>"}} for name, messages in plain.items()}
    asked.update(json.loads((DATA / "style_conversations.json").read_text()))
    for path in sorted([*(DATA / "templates").glob("*.jinja"), *(DATA / "styles").glob("*.jinja")]):
        for name, conversation in asked.items():
            for prompt in (False, True):
                yield path, name, {"template": path.read_text(), **conversation, "add_generation_prompt": prompt}


# Each is rendered over MESSAGES with VARIABLES; what comes out, and the characters that count as generated, is the expectation.
MESSAGES = [{"role": "user", "content": "a <b> \"c\""}, {"role": "assistant", "content": "The é miller."}, {"role": "user", "content": "x"}, {"role": "assistant", "content": "Yes & no."}]
CONSTRUCTS = [
    # Markup: joining, formatting, methods, filters.
    "{% for m in messages %}{{ 'T '|safe + m.content }}{% endfor %}", "{{ '<'|e + '<' }}", "{{ '<' + '<'|e }}", "{{ '<' ~ '<'|e }}", "{{ ('<'|e) * 2 + '>' }}", "{{ '&'|e|e }}{{ '&'|e|forceescape }}{{ '&'|e|string|e }}",
    "{{ ('<%s>' | safe) % '<' }}", "{{ ('%s %r %5s|%d' | safe) % ('<', '<', '&', 3) }}", "{{ ('%(a)s' | safe) % {'a': '<'} }}", "{{ '%s' % ('<' | e) }}", "{{ ('%s' | safe) % [1, '<'] }}", "{{ '<%s>' | safe | format('<') }}",
    "{{ ('{} {!r} {:>4}' | safe).format('<', '<', '<') }}", "{{ ('{a}' | safe).format(a='<' | e) }}", "{{ '{}'.format('<' | e) }}", "{{ (', ' | safe).join(['<', '<' | e, 1]) }}", "{{ ['<', '<' | e] | join('&' | e) }}",
    "{{ ('a<b' | safe).replace('a', '<') }}", "{{ 'a<b' | safe | replace('a', '<') + '<' }}", "{{ ('a b' | safe).split()[0] + '<' }}", "{{ ('a-b' | safe).partition('-') }}", "{{ ('a\nb' | safe).splitlines() }}", "{{ ['<' | e, '<' | safe] }}",
    "{{ (' x ' | safe).strip() + '<' }}{{ ' x ' | safe | trim + '<' }}", "{{ ('abc' | safe)[0] + '<' }}{{ ('abc' | safe)[1:] + '<' }}{{ 'abc' | safe | last + '<' }}{{ 'abc' | safe | first + '<' }}", "{{ ('abc' | safe)[::-1] + '<' }}{{ 'abc' | safe | reverse + '<' }}",
    "{{ 'x<y' | safe | upper + '<' }}{{ 'x<y' | safe | title + '<' }}{{ 'x<y' | safe | capitalize + '<' }}", "{{ ('a b c d' | safe) | truncate(5, true, '<', 0) }}{{ 'a b c d e f' | truncate(5, false, '<' | e, 0) }}", "{{ 'a\nb' | safe | indent(2) + '<' }}", "{{ 'a' | safe | center(5) + '<' }}",
    "{{ 'a' | safe | tojson }}{{ {'a' | safe: '<' | e} | tojson }}", "{{ ('<' | e) == '&lt;' }}{{ '<' | e is string }}{{ '<' | e is escaped }}{{ '<' is escaped }}{{ 'l' in ('<' | e) }}", "{{ none | safe }}{{ 1 | e + '<' }}{{ missing | e }}|{{ [1] | safe }}", "{{ ('7' | safe | int) + 1 }}",
    "{% set x = '<' | e %}{% set y %}<{{ x }}{% endset %}{{ y + '<' }}", "{% macro f() %}<{% endmacro %}{{ f() + '<' }}{{ f() | e + '<' }}", "{% filter e %}<{% endfilter %}", "{% call f() %}{% endcall %}",
    "{{ (('<' | e).ljust(6, '.') + '<') }}{{ ('a' | safe).zfill(3) + '<' }}{{ ('ab' | safe).removeprefix('a') + '<' }}", "{{ ('<' | e).count('l') }}{{ ('<' | e).find('t') }}{{ ('<' | e).startswith('&') }}",
    # caller, kwargs and varargs as parameters.
    "{% macro f(caller=none) %}[{{ caller() if caller else '' }}]{% endmacro %}{% call f() %}x{% endcall %}{{ f() }}", "{% macro f(caller) %}[{{ caller() }}]{% endmacro %}{% call f() %}x{% endcall %}", "{% macro f(a, caller='c') %}{{ a }}{{ caller }}{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(1, caller=3) }}",
    "{% macro f(kwargs, varargs=2) %}{{ kwargs }}{{ varargs }}{% endmacro %}{{ f(1) }}{{ f(1, varargs=3) }}", "{% macro f() %}{% set caller = 1 %}{{ caller }}{% endmacro %}{{ f() }}", "{% macro f() %}{% set caller = 1 %}{% endmacro %}{% call f() %}x{% endcall %}", "{% macro f() %}{% macro g(caller) %}{% endmacro %}{{ caller() }}{% endmacro %}{% call f() %}x{% endcall %}",
    "{% macro f() %}{{ caller(1, b=2) }}{% endmacro %}{% call(a, b=3) f() %}{{ a }}{{ b }}{% endcall %}", "{% macro f(a, b=1) %}{% endmacro %}{{ f.name }}{{ f.arguments }}{{ f.catch_kwargs }}{{ f.catch_varargs }}{{ f.caller }}",
    # * and ** in calls, filters and tests.
    "{% macro f(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ f(*['x', 'y']) }}{{ f('x', *['y']) }}{{ f(*['x'], b='y') }}{{ f(**{'a': 1, 'b': 2}) }}{{ f(1, **{'b': 2}) }}{{ f(*'xy', **{}) }}", "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(*[1, 2], k=3, **{'l': 4}) }}",
    "{{ 'a-b' | replace(*['a', 'c']) }}{{ 'a' | default(**{'default_value': 1}) }}{{ 4 is divisibleby(*[2]) }}", "{{ f(a=1, **{'a': 2}) }}", "{{ dict(a=1, **{'a': 2}) }}", "{{ range(*[1, 3]) | list }}{{ dict(**{'a': 1}) }}{{ '{a}{}'.format(*[1], **{'a': 2}) }}", "{{ range(*missing) }}", "{{ dict(**missing) }}", "{{ f(**a, b) }}", "{{ f(**{1: 2}) }}",
    # generation anywhere.
    "{% macro say(t) %}{% generation %}{{ t }}{% endgeneration %}{% endmacro %}{% for m in messages %}{{ m.role }}:{{ say(m.content) if m.role == 'assistant' else m.content }}\n{% endfor %}",
    "{% macro say(t) %}é: {% generation %}{{ t }}{% endgeneration %}!{% endmacro %}{% for m in messages %}{{ say(m.content) }}{% endfor %}", "{% for m in messages %}{% set t %}{% generation %}{{ m.content }}{% endgeneration %}{% endset %}{{ m.role }}{{ t }}{% endfor %}",
    "{% for m in messages %}<{% generation %}{{ m.role }}{% generation %}{{ m.content }}{% endgeneration %}{% endgeneration %}>{% endfor %}", "{% macro f() %}[{{ caller() }}]{% endmacro %}{% for m in messages %}{% call f() %}{% generation %}{{ m.content }}{% endgeneration %}{% endcall %}{% endfor %}",
    "é{% filter trim %}  {% generation %}  abc  {% endgeneration %}{% endfilter %}", "{% macro two() %}{% generation %}ab{% endgeneration %}-{% generation %}abcd{% endgeneration %}{% endmacro %}é{{ two() }}{{ two() }}", "{% for i in [1, 2] %}{% generation %}{{ loop.index }}{% endgeneration %}{% endfor %}", "{% generation %}{{ caller() }}{% endgeneration %}", "{% for i in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    "{% for v in tree recursive %}{% generation %}{{ v.n }}{% endgeneration %},{{ loop(v.kids) if v.kids }}{% endfor %}",
    # set blocks of namespaces, with, print.
    "{% set ns = namespace() %}{% set ns.x %}a{{ 1 }}{% endset %}{{ ns.x }}{% set ns.y | upper %}b{% endset %}{{ ns.y }}", "{% set ns = namespace() %}{% set a, ns.b = 1, 2 %}{{ a }}{{ ns.b }}", "{% set x = 1 %}{% set x.y %}{% endset %}", "{% set missing.y = 1 %}", "{% set ns = namespace() %}{% set ns._x %}{% endset %}",
    "{% with a = 1 %}{{ a }}{% endwith %}{{ a }}", "{% set a = 1 %}{% with a = a + 1, b = a %}{{ a }}{{ b }}{% set a = 9 %}{% endwith %}{{ a }}", "{% with %}{% set s = 5 %}{{ s }}{% endwith %}{{ s }}", "{% with a, b = l[:2] %}{{ a }}{{ b }}{% endwith %}", "{% for x in l %}{% with y = loop.index %}{{ y }}{% if y == 2 %}{% break %}{% endif %}{% endwith %}{% endfor %}", "{% print 1, 'a' %}{% print s | upper %}",
    # loops.
    "{% for m in messages %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }}{% endfor %}", "{% for x in [1, 2] %}{{ loop.changed() }}{{ loop.changed(x, 1) }}{% endfor %}", "{% for x in l %}{{ loop.cycle() }}{% endfor %}", "{% for x in [1, 2] %}{% for y in [1, 2] %}{{ loop.changed(x) }}{% endfor %}{% endfor %}",
    "{% for v in tree recursive %}{{ loop.depth }}{{ loop.depth0 }}{{ loop.index }}{{ v.n }}{% if v.kids %}({{ loop(v.kids) }}){% else %}.{% endif %}{% else %}none{% endfor %}", "{% for x in l %}{{ loop(x) }}{% endfor %}", "{% for x in l %}{{ loop is callable }}{% endfor %}", "{% for x in [[1, 2], 3] if x recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}",
    "{% set j = joiner() %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}{% set k = joiner('|') %}{{ k() }}{{ k() }}{{ k.sep }}{{ k.used }}", "{% set c = cycler('a', 'b') %}{{ c.current }}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.reset() }}{{ c.current }}{{ c.items }}{{ c.pos }}", "{{ cycler() }}", "{% set j = joiner() %}{{ j(1) }}", "{{ joiner is callable }}{{ joiner() is callable }}{{ cycler(1) is callable }}",
    # the clock.
    "{{ strftime_now('%-d %B %Y') }}|{{ strftime_now('%_d|%-I|%e|%^a|%j|%-j|%H:%M:%S %p') }}", "{{ strftime_now('[%z%Z]') }}{{ strftime_now('%%-d') }}{{ strftime_now('%5Y%05d') }}", "{{ strftime_now('%D %F %T %R %r %C %y %g %G %u %w %U %V %W %k %l %n%t%h%s') }}",
    # methods and attributes of Python.
    "{{ [1, 2].copy() }}{{ {'a': 1}.copy() }}{{ range(1, 5, 2).start }}{{ range(1, 5, 2).stop }}{{ range(1, 5, 2).step }}", "{{ (1, 2).copy is defined }}{{ [1].copy is defined }}", "{{ messages.append(1) }}", "{% set x = {}.update({'a': 1}) %}",
]


# One operation on whole numbers near where 64 bits end, on lengths, widths and places.
EDGES = [0, 1, -1, 2, -2, 3, 7, 10, -10, 63, 64, 100, 2**31, -(2**31), 2**32, 2**53, 2**53 + 1, -(2**53) - 1, 10**18, -(10**18) - 3, 2**62, -(2**62), 2**62 + 1, 2**63 - 1, 1 - 2**63, -(2**63)]
PLACES = [0, 1, -1, 2, -2, 3, -3, 5, -7, 100, -100, 2**62, -(2**62), 2**63 - 1, -(2**63)]


def literal(n):
    return str(n) if n >= 0 else f"(-{-n})" if n > -(2**63) else f"(-{2**63 - 1} - 1)"


def arithmetic(r):
    n, p, small = lambda: literal(r.choice(EDGES)), lambda: literal(r.choice(PLACES)), lambda: r.choice([0, 1, -1, 2, -3, 5, 12, -(2**63)])
    part = lambda: r.choice(["", p(), p()])
    ranges = lambda: r.choice([f"range({a}, {b}, {c})" for a, b, c in [
        (0, 10, 1), (10, 0, -3), (2**63 - 1, -(2**63) + 1, -(2**61)), (-(2**63) + 1, 2**63 - 1, 2**62), (5, 5, 1), (0, 2**63 - 1, 2**60), (2**63 - 4, 2**63 - 1, 1), (1, 3, 2**63 - 1)]])
    return "{{ " + r.choice([
        lambda: f"{n()} {r.choice(['+', '-', '*', '/', '/', '//', '//', '%', '%'])} {n()}", lambda: f"{n()} {r.choice(['+', '-', '*', '/', '//', '%'])} {n()}", lambda: f"{n()} ** {literal(r.choice([0, 1, 2, 3, -1, -2, 20, 39, 40, 62, 63, 64]))}",
        lambda: f"-{n()}", lambda: f"{n()} | abs", lambda: f"[{n()}, {n()}] | sum", lambda: f"{n()} {r.choice(['==', '<', '<=', '!='])} {n()}", lambda: f"{n()} {r.choice(['==', '<', '>='])} {r.choice(['1e18', '9007199254740992.0', '9223372036854775808.0', '0.5', '-1e30'])}",
        lambda: f"{n()} is {r.choice(['odd', 'even', f'divisibleby({n()})'])}", lambda: f"{n()} | round({r.choice([0, 2, 18])}{r.choice(['', ', ' + repr('floor'), ', ' + repr('ceil')])})", lambda: f"{n()} | float",
        lambda: f"'{r.choice(EDGES) + r.choice([0, 0, 1, -1])}' | int", lambda: f"'{r.choice(['', '-'])}{r.choice(['7fffffffffffffff', '8000000000000000', '0x10', 'ff'])}' | int(base=16)", lambda: f"{r.choice(['1e18', '9.3e18', '-9223372036854775808.0', '2.9', '-2.9', '1e300'])} | int",
        lambda: f"'{r.choice(['%d', '%5d|', '%x', '%+d', '%08d'])}' % {n()}", lambda: f"'{r.choice(['{:d}', '{:,}', '{:+d}', '{:x}', '{:>24}', '{:024d}', '{:#x}'])}'.format({n()})",
        lambda: f"{ranges()}[{part()}:{part()}:{part()}]", lambda: f"{ranges()}[{part()}:{part()}:{part()}] | list", lambda: f"{ranges()} | length", lambda: f"{n()} in {ranges()}", lambda: f"{ranges()}[{p()}]", lambda: f"{{{ranges()}: 1}}[{ranges()}] is defined",
        lambda: f"'abcdé'[{part()}:{part()}:{part()}]", lambda: f"[1, 2, 3, 4, 5][{part()}:{part()}:{part()}]", lambda: f"'abcdé'[{p()}]", lambda: f"[1, 2, 3][{p()}]",
        lambda: f"'abcabc'.{r.choice(['find', 'rfind', 'count', 'startswith'])}('b', {p()}, {p()})", lambda: f"[3, 1, 2, 1].index(1, {p()}, {p()})", lambda: f"'abcabc'.replace('a', '-', {p()})", lambda: f"'a,b,c'.{r.choice(['split', 'rsplit'])}(',', {p()})",
        lambda: f"'{r.choice(['x', '-1', '+', ''])}'.{r.choice(['zfill', 'center', 'ljust', 'rjust'])}({literal(small())})", lambda: f"'ab' * {literal(small())}", lambda: f"[1, 2] * {literal(small())}", lambda: f"'a\\nb' | indent({literal(small())}, true)", lambda: f"'abc' | center({literal(small())})",
        lambda: f"'abcdef ghi' | truncate({r.choice([3, 5, 9, 2**63 - 1])}, true, '..', {r.choice([0, 5, 2**63 - 1])})", lambda: f"range(6) | {r.choice(['batch', 'slice'])}({r.choice([1, 4, 7])}) | list", lambda: f"{{{n()}: 'x'}}[{n()} * 1.0]",
    ])() + " }}"


def beyond_64_bits(text):
    return any(not -(2**63) <= int(n) < 2**63 for n in re.findall(r"(?<![\d.e+])-?\d+(?![\d.e])", text.replace(",", "") if "," in text and "[" not in text and "(" not in text else text))


def one_a_line(path, rows):
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def constructed(template):
    return {"template": template, "messages": MESSAGES, "variables": VARIABLES, "add_generation_prompt": False}


def write():
    """The expected renderings that the repository's own tests read."""
    rows = []
    for path, name, case in styles():
        if path.parent.name == "styles" and name in json.loads((DATA / "style_conversations.json").read_text()):
            rows.append({"template": path.stem, "conversation": name, "add_generation_prompt": case["add_generation_prompt"], **expected(case)})
    one_a_line(DATA / "styles.json", rows)
    cases = [{"template": template, **expected(constructed(template))} for template in CONSTRUCTS]
    (DATA / "constructs.json").write_text(json.dumps({"messages": MESSAGES, "variables": VARIABLES})[:-1] + ', "cases": [\n' + ",\n".join(json.dumps(case) for case in cases) + "\n]}\n")
    generate, rows = Generator(2026), []
    for make, count in ((lambda: "{{ " + generate(generate.r.randint(1, 2)) + " }}", 500), (lambda: "{% set ns = namespace(x=1) %}" + generate.block(2), 150)):
        chosen = []
        while len(chosen) < count:
            template = make()
            want = expected({"template": template, "messages": [{"role": "user", "content": "x"}], "variables": VARIABLES, "add_generation_prompt": False})
            if len(want.get("text", "")) < 400 and ("text" in want or generate.r.random() < 0.2):
                chosen.append({"template": template, **({"text": want["text"]} if "text" in want else {"error": want["error"][:60]})})
        rows += chosen
    r, rows = random.Random(64), {}
    while len(rows) < 700:
        template = arithmetic(r)
        want = expected({"template": template, "messages": [{"role": "user", "content": "x"}], "variables": {}, "add_generation_prompt": False})
        rows[template] = {"error": want["error"][:60]} if "error" in want else {"beyond": True} if beyond_64_bits(want["text"]) else {"text": want["text"]}
    one_a_line(DATA / "arithmetic.json", [{"template": template, **row} for template, row in rows.items()])
    (DATA / "expressions.json").write_text('{"variables": ' + json.dumps(VARIABLES) + ',\n"cases": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]}\n")


def compare(program, case, counts):
    want, got = expected(case), program(case)
    kind = ("error" if "error" in want else "text") + "/" + ("error" if "error" in got else "text")
    if kind == "text/text" and want != got:
        kind = "DIFFERENT"
    counts[kind] = counts.get(kind, 0) + 1
    if kind in ("DIFFERENT", "error/text", "text/error") and not excused(want, got):
        counts["BAD"] = counts.get("BAD", 0) + 1
        if counts["BAD"] <= 40:
            print(f"{kind}: {case['template']!r}\n   transformers {json.dumps(want, ensure_ascii=False)[:400]}\n   spillway     {json.dumps(got, ensure_ascii=False)[:400]}")
    return want


EXCUSES = ["64 bits", "that can be printed", "got several", "`sameas`", "a Python attribute", "outside", "a Jinja filter", "precision", "at least 0",
           "format for a text", "for a value of type", "complex", "as a format", "lists, tuples or dicts to compare", "%d without", "count from 1", "a Jinja test", "expected a text as argument 0, got",
           "a real number is required", "as indent's width", "inside its own loop", "cannot assign attribute", "a Jinja function"]


def excused(want, got):
    """Refused by name, as the room's header says; or refused by Jinja before it renders, in a part that is not reached."""
    if "No filter named" in want.get("error", "") or "No test named" in want.get("error", ""):
        return True
    if "not subscriptable" in got.get("error", ""):  # what Jinja folds
        return True
    return "text" in want and any(excuse in got.get("error", "") for excuse in EXCUSES)


def main():
    if sys.argv[1] == "--write":
        return write()
    program = Program(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    generate = Generator(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    counts = {}
    for _, _, case in styles():
        compare(program, case, counts)
    print("published styles:", counts)
    counts = {}
    for template in CONSTRUCTS:
        compare(program, constructed(template), counts)
    print("constructs:", counts)
    for what, make in (("expressions", lambda: "{{ " + generate(generate.r.randint(1, 3)) + " }}"), ("blocks", lambda: "{% set ns = namespace(x=1) %}" + generate.block())):
        counts = {}
        for _ in range(count):
            compare(program, {"template": make(), "messages": [{"role": "user", "content": "x"}], "variables": VARIABLES, "add_generation_prompt": False}, counts)
        print(what + ":", counts)


if __name__ == "__main__":
    main()
