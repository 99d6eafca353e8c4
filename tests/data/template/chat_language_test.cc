// Tests the language of chat templates with hand-written cases: the result of each
// construct, what is refused with which message, and that every limit is enforced.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "data/template/chat_template.h"
#include "tests/data/template/support_chat.h"

namespace spillway::data::chat_language_test {
namespace {

using test::Json;
using ::testing::HasSubstr;

const Json kMessages = Json::parse(R"([{"role": "user", "content": "hé"}, {"role": "assistant", "content": "ok", "x": null}])");

std::string render(const std::string& source, const Json& variables = Json::object()) {
  return ChatTemplate(source, "t.jinja").render(kMessages, variables, true, 0).text;
}

std::string error_of(const std::string& source, const Json& variables = Json::object()) {
  return test::error_of([&] { render(source, variables); });
}

TEST(ChatLanguage, WhiteSpaceGoesAsInJinja) {
  EXPECT_EQ(render("a\n  {% if true %}\nb\n  {% endif %}\nc\n"), "a\nb\nc");
  EXPECT_EQ(render("a  {%- if true -%}  b  {%- endif %}"), "ab");
  EXPECT_EQ(render("  {%+ if true %}x{% endif +%}\ny"), "  x\ny");
  EXPECT_EQ(render("{# c #}\n{#- d -#}  x{{ 1 -}}  y\n\n"), "x1y\n");
  EXPECT_EQ(render("{% raw %}{{ x }}\n{% endraw %}\nz"), "{{ x }}\nz");
  EXPECT_EQ(render("a\r\nb\rc"), "a\nb\nc");
}

TEST(ChatLanguage, MessagesComeAsTransformersHandsThemOver) {
  EXPECT_EQ(render("{{ messages[1] }}{{ tools }}{{ documents is defined }}{{ add_generation_prompt }}"),
            "{'role': 'assistant', 'content': 'ok'}NoneTrueTrue");
  const Json reasoning = Json::parse(R"([{"role": "assistant", "reasoning": "r", "content": "c"}])");
  EXPECT_EQ(ChatTemplate("{{ messages | tojson }}", "t").render(reasoning, {}, false).text,
            R"([{"thinking": "r", "role": "assistant", "reasoning": "r", "content": "c", "reasoning_content": "r"}])");
}

TEST(ChatLanguage, NamesMeanWhatJinjaDecides) {
  EXPECT_EQ(render("{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}"), "231");
  EXPECT_EQ(render("{% set n = namespace(x=1) %}{% for i in [1, 2] %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}"), "4");
  // A later unconditional {% set v %} makes `v` the template's own variable, so the loop does not see the value that was passed in.
  EXPECT_EQ(render("{% for i in [1] %}[{{ v }}]{% endfor %}{% set v = 'own' %}{{ v }}", {{"v", "given"}}), "[]own");
  EXPECT_EQ(render("{{ v }}{% set v = 'own' %}{{ v }}", {{"v", "given"}}), "givenown");
  EXPECT_EQ(render("{% if false %}{% set v = 'own' %}{% endif %}{% for i in [1] %}{{ v }}{% endfor %}", {{"v", "given"}}), "given");
  EXPECT_EQ(render("{% macro m(a, b=a) %}{{ a }}{{ b }}{{ later }}{% endmacro %}{% set later = 3 %}{{ m(1) }}"), "113");
}

TEST(ChatLanguage, TheSandboxHidesWhatItHidesInJinja) {
  EXPECT_EQ(render("{{ messages.__class__ }}{{ messages.append is defined }}"), "False");
  EXPECT_THAT(error_of("{{ ''.__class__.__mro__ }}"), HasSubstr("access to attribute '__class__' of 'str' object is unsafe."));
  EXPECT_THAT(error_of("{{ messages.append(1) }}"), HasSubstr("access to attribute 'append' of 'list' object is unsafe."));
  EXPECT_THAT(error_of("{% set n = namespace(_x=1) %}"), HasSubstr("does not begin with '_'"));
  EXPECT_THAT(error_of("{{ ''.encode() }}"), HasSubstr("str.encode"));
}

TEST(ChatLanguage, ErrorsTellLineAndMessage) {
  EXPECT_EQ(error_of("a\n{{ raise_exception('no ' ~ 1) }}"), "[chat template] t.jinja, line 2: no 1");
  EXPECT_EQ(error_of("{% for m in messages[1:] %}\n{{ m.x.y }}{% endfor %}"),
            "[chat template] t.jinja, line 2, message 2: 'dict object' has no attribute 'x'");
  EXPECT_EQ(error_of("{{ 'a' + nothing }}"), "[chat template] t.jinja, line 1: 'nothing' is undefined");
  EXPECT_EQ(error_of("\n\n{% for x in y %}"), "[chat template] t.jinja, line 3: expected {% endfor %}, got the end of the template");
  EXPECT_EQ(error_of("{{ 1 + }}"), "[chat template] t.jinja, line 1: expected an expression, got }}");
}

TEST(ChatLanguage, WhatIsNotKnownIsRefusedByName) {
  for (const char* tag : {"include 'x'", "import 'x' as y", "extends 'x'", "block x", "do x", "autoescape true", "from 'x' import y"}) {
    EXPECT_THAT(error_of(std::string("{% ") + tag + " %}"), HasSubstr("expected one of the tags for, if, set, with, macro")) << tag;
  }
  EXPECT_THAT(error_of("{{ lipsum() }}"), HasSubstr("got lipsum()"));
  for (const char* filter : {"attr", "filesizeformat", "pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr"}) {
    EXPECT_THAT(error_of(std::string("{{ 1 | ") + filter + " }}"), HasSubstr(std::string("got '") + filter + "'"));
  }
  for (const char* method :
       {"casefold", "encode", "expandtabs", "format_map", "isascii", "isidentifier", "isprintable", "istitle", "swapcase"}) {
    EXPECT_THAT(error_of(std::string("{{ 'a'.") + method + " is defined }}"), HasSubstr(std::string("got str.") + method));
  }
  EXPECT_THAT(error_of("{{ ('a' | safe).striptags is defined }}"), HasSubstr("got Markup.striptags"));
  EXPECT_THAT(error_of("{{ dict.fromkeys is defined }}"), HasSubstr("got function.fromkeys"));
  EXPECT_THAT(error_of("{{ strftime_now('%f') }}"), HasSubstr("got '%f'"));
  EXPECT_THAT(error_of("{{ 9223372036854775807 + 1 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(error_of("{{ 9223372036854775808 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(error_of("{{ v }}", {{"v", u64{1} << 63}}), HasSubstr("64 bits"));
  EXPECT_THAT(error_of("{{ \xff }}"), HasSubstr("UTF-8"));
  EXPECT_THAT(error_of("{{ v }}", {{"v", "\xed\xa0\x80"}}), HasSubstr("UTF-8"));
  EXPECT_THAT(error_of("{{ '\\ud800' }}"), HasSubstr("character code"));
}

TEST(ChatLanguage, MessagesAndVariablesAreChecked) {
  const ChatTemplate chat("x", "t");
  const auto refused = [&](const char* messages, const char* variables) {
    return test::error_of([&] { chat.render(Json::parse(messages), Json::parse(variables), false); });
  };
  EXPECT_THAT(refused("[]", "{}"), HasSubstr("a list of at least one message"));
  EXPECT_THAT(refused("{}", "{}"), HasSubstr("a list of at least one message"));
  EXPECT_THAT(refused("[{}, 3]", "{}"), HasSubstr("message 2: expected messages that are objects, got one that is number"));
  EXPECT_THAT(refused("[{}]", "[1]"), HasSubstr("variables"));
  EXPECT_THAT(refused("[{}]", R"({"messages": 1})"), HasSubstr("got 'messages' among them"));
}

TEST(ChatLanguage, StepsTextAndDepthAreBounded) {
  const char* kEndless[] = {
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(n) %}{{ m(n + 1) ~ m(n + 1) }}{% endmacro %}{{ m(1) }}",
      "{% set n = namespace(s='xxxxxxxx') %}{% for a in range(1000) %}{% set n.s = n.s + n.s %}{% endfor %}",
      "{% set n = namespace(s=[1]) %}{% for a in range(1000) %}{% set n.s = n.s + n.s %}{% endfor %}",
      "{% set n = namespace(s=[1]) %}{% for a in range(1000) %}{% set n.s = [n.s] %}{% endfor %}",
      "{% set n = namespace(s=1) %}{% for a in range(1000) %}{% for b in [n.s] %}{% set n.s = loop %}{% endfor %}{% endfor %}",
      "{{ 'x' * 9999999999 }}",
      "{{ [1] * 9999999999 }}",
      "{{ 'x' | center(9999999999) }}",
      "{{ 'x' | indent(9999999999) }}",
      "{{ '%999999999d' % 1 }}",
      "{{ '{:999999999}'.format(1) }}",
      "{{ 'x'.zfill(9999999999) }}",
      "{{ range(10000000) }}",
      "{{ 2 ** 999999999999 }}",
      "{{ [[1, 2]] | tojson(indent=9999999999) }}",
      "{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}",
      "{% set n = namespace(s=1) %}{% for a in range(100000) %}{% set n.s = joiner(n.s) %}{% endfor %}",
      "{% set n = namespace(s=1) %}{% for a in range(100000) %}{% set n.s = cycler(n.s) %}{% endfor %}",
      "{{ ('<' | e) * 9999999999 }}",
      "{% macro m() %}{% generation %}{{ m() }}{% endgeneration %}{% endmacro %}{{ m() }}",
      "{% for a in range(100000) %}{{ 'xxxxxxxxxxxxxxxx' * 999 }}{% endfor %}",
      "{% set n = namespace(s=1) %}{% for a in range(100000) %}{% for b in range(99) %}{% set n.s = namespace(s=n.s) %}{% endfor %}{% "
      "endfor %}"};
  for (const char* source : kEndless) EXPECT_THAT(error_of(source), ::testing::ContainsRegex("expected|MAX_RANGE")) << source;
  const auto repeated = [](const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  const std::string nested =
      "{% macro m() %}" + repeated("{% if 1 %}", 190) + "{{ m() }}" + repeated("{% endif %}", 190) + "{% endmacro %}{{ m() }}";
  EXPECT_THAT(error_of(nested), HasSubstr("1000 blocks and expressions"));
  EXPECT_THAT(error_of("{% macro m() %}{{ " + repeated("[", 90) + "m()" + repeated("]", 90) + " }}{% endmacro %}{{ m() }}"),
              HasSubstr("1000 blocks"));
  for (const char* open : {"(", "[", "{1:", "-", "not ", "a[", "a(", "1 if ", "a|f("}) {
    EXPECT_THAT(error_of("{{ " + repeated(open, 100000)), HasSubstr("200 deep")) << open;
  }
  for (const char* more : {"+1", "|trim", ".x", "()", "~(1)+1"}) {
    EXPECT_THAT(error_of("{{ 1" + repeated(more, 100000) + " }}"), HasSubstr("200 deep")) << more;
  }
  EXPECT_THAT(error_of(repeated("{% if 1 %}", 100000)), HasSubstr("200 deep"));
  Json deep = 1;
  for (int i = 0; i < 300; ++i) deep = Json::array({deep});
  EXPECT_THAT(error_of("x", {{"v", deep}}), HasSubstr("200 deep"));
  EXPECT_THAT(error_of(std::string(5 << 20, 'x')), HasSubstr("at most 1048576 bytes"));
}

TEST(ChatLanguage, RingsAreFreed) {
  EXPECT_EQ(
      render("{% set n = namespace() %}{% set n.n = n %}{% macro m() %}{{ n.n.n is defined }}{% endmacro %}{% set n.m = m %}{{ n.m() }}"),
      "True");
  EXPECT_EQ(render("{% set n = namespace() %}{% for i in [n] %}{% macro m() %}{{ i }}{% endmacro %}{% set n.m = [m, loop] %}{% endfor %}x"),
            "x");
  EXPECT_EQ(
      render(
          "{% set n = namespace() %}{% for i in [1] recursive %}{{ loop.changed(loop, n) }}{% set n.l = [loop, loop.cycle] %}{% endfor %}"
          "{% set n.j = joiner(n) %}"),
      "True");
  EXPECT_THAT(error_of("{% set n = namespace() %}{% macro m() %}{% for i in [1] recursive %}{% set n.l = loop %}{% endfor %}{% endmacro %}"
                       "{{ m() }}{{ n.l([1]) }}"),
              HasSubstr("loop()"));
}

TEST(ChatLanguage, ThreadsShareATemplate) {
  const ChatTemplate chat("{% set x = 'a' ~ [1, 'b'] %}{% for m in messages %}{{ m.content ~ x }}{% endfor %}", "t");
  const std::string expected = chat.render(kMessages, {}, false).text;
  std::vector<std::string> got(4);
  std::vector<std::thread> threads;
  for (std::string& text : got) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) text = chat.render(kMessages, {}, false).text;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : got) EXPECT_EQ(text, expected);
}

TEST(ChatLanguage, TheClockIsTheCallers) {
  EXPECT_EQ(render("{{ strftime_now('%Y') | length }}{{ strftime_now('%%') }}{{ strftime_now('%z%Z') }}"), "4%");
}

}  // namespace
}  // namespace spillway::data::chat_language_test
