// Tests small chat templates that would take much time or memory. Each is either cheap or
// refused by a limit. The limits grow with the size of the template and the conversation.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "data/template/chat_template.h"
#include "data/template/interpreter.h"
#include "data/template/syntax/parser.h"
#include "tests/data/template/support_chat.h"

namespace spillway::data::chat_budget_test {
namespace {

using test::Json;
using ::testing::HasSubstr;

Json says(const std::string& content) { return Json::array({Json{{"role", "user"}, {"content", content}}}); }

std::string render(const std::string& source, const Json& messages = says("x")) {
  return ChatTemplate(source, "t.jinja").render(messages, {}, true, 0).text;
}

std::string error_of(const std::string& source) {
  return test::error_of([&] { render(source); });
}

std::string repeated(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

std::string numbered(const std::string& before, size_t count, const std::string& behind) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += before + std::to_string(i) + behind;
  return all;
}

// Returns templates that would hold more bytes in memory at once than the limit allows.
std::vector<std::string> large() {
  return {
      "{{ ('A' * 600000000) | reverse }}",
      "{{ ('A' * 9223372036854775807) * 2 }}",
      "{{ [1] * 4611686018427387904 }}",
      "{{ ('A' * 30000000).split('A') | length }}",
      "{{ ('\\n' * 30000000).splitlines() | length }}",
      "{{ ('A' * 5000000) | list | length }}",
      "{{ ('A' * 1000000).replace('A', 'A' * 100) | length }}",
      "{{ (['A' * 1000000] * 100) | join | length }}",
      "{{ (['A' * 1000000] * 100) | string | length }}",
      "{{ (['A' * 1000000] * 100) | tojson | length }}",
      "{{ ([['A']] * 1000000) | tojson(indent=100) | length }}",
      "{{ ('A\\n' * 1000000) | indent(100) | length }}",
      "{{ ('%1000000d' * 100) % ((1,) * 100) }}",
      "{{ range(100000) | batch(1, 1) | map('batch', 1000, 1) | map('list') | list }}",
      "{{ ('A' * 1000000) | slice(1000000) | list }}",
      "{% set big = 'A' * 4000000 %}{% set ns = namespace(l=[]) %}{% for i in range(2000) %}{% set ns.l = ns.l + [(big, i)] %}{% endfor %}"
      "{{ ns.l | unique | list | length }}",
      "{% set a = 'A' * 10000000 ~ 'B' %}{{ ([a] * 300000) | sort | length }}",
      "{% set x = range(8000) | map(attribute='" + std::string(100000, 'A') + "') | list %}",
      "{{ 'a' | map(*(['map'] * 30000)) | list }}",
      "{% for a in range(100000) %}{{ 'xxxxxxxxxxxxxxxx' * 999 }}{% endfor %}"};
}

// Returns expressions that read all of `s`, a text of a million letters, and must stay within the limit of steps.
std::vector<std::string> on_long_texts() {
  return {"s ~ 'B' in s ~ s",
          "s.find('AAAB' * 8)",
          "s.rfind('B')",
          "s.rfind('B' ~ 'A' * 40)",
          "s.count('AAB')",
          "s.startswith(s)",
          "s.endswith(('B', s))",
          "s.strip('A')",
          "s.split() | length",
          "s.partition('B')",
          "s == s ~ ''",
          "s < s ~ 'B'",
          "[s ~ 'B', s ~ 'C'] | sort",
          "[s ~ 'B', s ~ 'C'] | max",
          "{s: 1}[s ~ '']",
          "s ~ '' in {s: 1}",
          "{s: 1}.get(s)",
          "(s, 1) in {(s, 1): 2}",
          "s.removeprefix(s ~ '')",
          "s.zfill(3)",
          "s.isdigit()",
          "s.islower()",
          "s.title()",
          "s.splitlines()",
          "s % ()",
          "s.format()",
          "s[1]",
          "s[:-1]",
          "s[::2]",
          "s | length",
          "s | wordcount",
          "s | urlencode",
          "s | title",
          "s | trim",
          "s | e",
          "s | indent",
          "s | truncate(9)",
          "s | truncate(999999, true, '', 0)",
          "s | replace('B', '')",
          "s | int",
          "s | float",
          "s | reverse",
          "s | tojson",
          "{s: 1} | tojson",
          "s | first",
          "s is upper",
          "s | lower",
          "[s] | string",
          "[s, s] | unique | list",
          "[[s]] | groupby(0)",
          "[s] | join('B')",
          "'%s' % s",
          "'{}'.format(s)",
          "namespace(x=s).x ~ ''"};
}

// Returns templates whose rendering takes more steps than the limit allows.
std::vector<std::string> long_ones() {
  const std::string sets = numbered("{% set a", 20000, "=1 %}");
  std::vector<std::string> all = {
      sets + "{% for i in range(100000) %}{% set x = a19999 %}{% set x = a19999 %}{% set x = a19999 %}{% endfor %}",
      "{% set n = namespace(t=[1], u=[1]) %}{% for i in range(150) %}{% set n.t = [n.t, n.t] %}{% set n.u = [n.u, n.u] %}{% endfor %}"
      "{{ n.t == n.u }}",
      "{% for i in range(100000) %}{% for j in range(10) %}{% continue %}" + sets + "{% endfor %}{% endfor %}",
      "{% set n = namespace(t=(1, 1)) %}{% for i in range(150) %}{% set n.t = (n.t, n.t) %}{% endfor %}{{ {n.t: 1} }}",
      "{% set n = namespace(t=[1]) %}{% for i in range(150) %}{% set n.t = [n.t, n.t] %}{% endfor %}{{ n.t }}",
      "{% set s = ('\\u03a3' ~ \"'\" * 1000) * 1000 %}{% for i in range(10000) %}{% set x = s | lower %}{% endfor %}"};
  for (const std::string& expression : on_long_texts()) {
    all.push_back("{% set s = 'A' * 1000000 %}{% for i in range(100000) %}{% set x = " + expression + " %}{% endfor %}");
  }
  return all;
}

// Returns the number of steps that rendering `source` takes. The template must stay within the limits.
i64 steps_of(const std::string& source) {
  const std::string file = "t.jinja";
  const chat::Syntax syntax = chat::parse(source, file);
  chat::Run run(file, 0);
  run.begin();
  const i64 before = run.steps_left();
  chat::Interpreter(run, std::make_shared<const chat::Dict>(), {}).run(syntax.body);
  return before - run.steps_left();
}

TEST(ChatBudget, WhatHoldsTooMuchIsRefused) {
  for (const std::string& source : large()) {
    const std::string error = error_of(source);
    EXPECT_THAT(error, ::testing::AnyOf(HasSubstr("bytes at once"), HasSubstr("fits in memory"), HasSubstr(" steps")))
        << source.substr(0, 200);
    EXPECT_LT(error.size(), 2200);
  }
}

TEST(ChatBudget, WhatTakesTooLongIsRefused) {
  const auto all = long_ones();
  for (size_t i = 0; i < 2; ++i) EXPECT_THAT(error_of(all[i]), HasSubstr(" steps")) << all[i].substr(0, 200);
}

TEST(SoakChatBudget, WhatTakesTooLongIsRefused) {
  for (const std::string& source : long_ones()) EXPECT_THAT(error_of(source), HasSubstr(" steps")) << source.substr(0, 200);
}

TEST(ChatBudget, StepsAreTakenForBytes) {
  const std::string set = "{% set s = 'A' * 1000000 %}";
  const i64 before = steps_of(set);
  for (const std::string& expression : on_long_texts()) {
    EXPECT_GE(steps_of(set + "{% set x = " + expression + " %}") - before, 1'000'000 / 256) << expression;
  }
}

TEST(ChatBudget, StepsAreTakenForNames) {
  const auto of_loop = [](const std::string& before, const std::string& inside) {
    return steps_of(before + "{% for i in [1] %}" + inside + "{% endfor %}");
  };
  const std::string sets = numbered("{% set a", 8000, "=1 %}");
  EXPECT_GE(of_loop(sets, "{{ a7999 }}") - of_loop(sets, ""), 500);
  EXPECT_GE(of_loop("", "{% continue %}" + sets) - of_loop("", ""), 8000);
  const std::string parameters = numbered("p", 960, "=1,");
  const std::string macro = "{% macro m(" + parameters + "z=0) %}{% endmacro %}", space = "{% set n = namespace(" + parameters + "z=0) %}";
  EXPECT_GE(steps_of(macro + "{{ m() }}") - steps_of(macro), 960 * 960 / 2 / 16);
  EXPECT_GE(steps_of(space + "{{ n.z }}") - steps_of(space), 60);
  EXPECT_GE(steps_of("{{ ('{z}' * 100).format(" + parameters + "z='') }}") - steps_of("{{ ('{z}' * 1).format(" + parameters + "z='') }}"),
            99 * 60);
}

// Returns the peak memory of this process, in bytes, since the last call of this function.
i64 peak_bytes() {
  i64 kilobytes = 0;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) kilobytes = std::stoll(line.substr(6));
  }
  std::ofstream("/proc/self/clear_refs") << 5;
  return kilobytes * 1024;
}

TEST(ChatBudgetRelease, WhatIsRefusedHasNotTakenMore) {
  for (const std::string& source : large()) {
    peak_bytes();
    const i64 before = peak_bytes();
    error_of(source);
    EXPECT_LT(peak_bytes() - before, i64{256} << 20) << source.substr(0, 200);
  }
}

TEST(ChatBudget, WhatOnlySeemsLongIsRendered) {
  EXPECT_EQ(render("{{ ('A' * 5000000 ~ 'B') in 'A' * 10000000 }}"), "False");
  EXPECT_EQ(render("{{ ('A' * 2000000).strip('B' * 2000000 ~ 'A') | length }}"), "0");
  EXPECT_EQ(render("{% set n = 'A' * 1000000 ~ 'B' ~ 'A' * 1000000 %}{{ ('A' * 4000000).count(n) }}{{ ('A' * 4000000).rfind('B' ~ n) }}"),
            "0-1");
  EXPECT_EQ(render("{% set c = cycler(*range(100000)) %}{% for i in range(100000) %}{% set x = [c] %}{% endfor %}"), "");
  EXPECT_EQ(render(repeated("{% macro m() %}", 190) + repeated("{{ a }}", 100000) + repeated("{% endmacro %}", 190)), "");
  EXPECT_EQ(render(repeated("{% for i in [1] %}", 190) + repeated("{{ a }}", 1000) + repeated("{% endfor %}", 190)), "");
  EXPECT_EQ(render(repeated("{% with %}", 190) + numbered("{{ a", 60000, " }}") + repeated("{% endwith %}", 190)), "");
}

// The limit of bytes is exceeded if the template itself makes a million letters, but not if a message contains them.
TEST(ChatBudget, LimitsGrowWithTheConversation) {
  EXPECT_THAT(error_of("{{ ('\u00e9' * 1000000) | list | length }}"), HasSubstr("bytes at once"));
  EXPECT_EQ(render("{{ messages[0].content | list | length }}", says(repeated("é", 1000000))), "1000000");
  EXPECT_THAT(error_of("{% set c = 'a' * 300000 %}{% for i in range(600) %}{% set x = c in {c: 1} %}{% endfor %}"), HasSubstr(" steps"));
  const std::string often = "{% set c = messages[0].content %}{% for i in range(600) %}{% set x = c in {c: 1} %}{% endfor %}";
  EXPECT_EQ(render(often, says(std::string(300000, 'a'))), "");
}

TEST(ChatBudget, FiltersInEachOtherAreBounded) {
  EXPECT_THAT(error_of("{{ 'a' | map(*(['map'] * 1200)) | list }}"), HasSubstr("inside each other"));
}

TEST(ChatBudget, TemplatesAreBounded) {
  EXPECT_THAT(error_of(std::string((1 << 20) + 1, 'x')), HasSubstr("at most 1048576 bytes"));
  EXPECT_EQ(render("{% set " + std::string(256, 'a') + " = 1 %}x"), "x");
  EXPECT_THAT(error_of("{% set " + std::string(257, 'a') + " = 1 %}"), HasSubstr("a name of at most 256 bytes"));
  EXPECT_THAT(error_of("{% set n = namespace({'a' * 257: 1}) %}"), HasSubstr("an attribute's name of at most 256 bytes"));
  EXPECT_THAT(error_of("{% macro m(" + numbered("a", 1001, ",") + "b) %}{% endmacro %}"), HasSubstr("at most 1000 parameters"));
  EXPECT_THAT(error_of("{{ dict(" + numbered("a", 1001, "=1,") + "b=1) }}"), HasSubstr("at most 1000"));
  EXPECT_THAT(error_of("{{ dict(**dict([" + numbered("('a", 1001, "', 1),") + "])) }}"), HasSubstr("at most 1000"));
}

// Rendering gives all memory that it frees back to the budget, so that the budget counts what is held at once.
TEST(ChatBudget, WhatIsFreedIsGivenBack) {
  const std::string file = "t";
  for (const char* source :
       {"{{ 'a' * 1000 ~ [1, 'x'] }}", "{% for i in range(1000) %}{{ [i, loop] | length }}{% endfor %}",
        "{% macro m(a, b=1) %}{{ a ~ caller() }}{% endmacro %}{% call m('x' * 100) %}y{% endcall %}",
        "{{ {'a': [1, {'b': 'c' * 99}]} | tojson(indent=4) }}{{ 'a b c' | upper | replace('A', 'x' * 50) }}",
        "{{ ['b', 'a', 'B'] | sort | unique | groupby('x', default='y') | map(attribute='list') | list }}",
        "{% set x %}{% filter upper %}{{ cycler(1, 2).next() }}{{ ('<' * 40) | e }}{% endfilter %}{% endset %}{{ x[::-1] }}",
        "{{ 'x' * 100000000000 }}"}) {
    chat::Run run(file, 0);
    const chat::Syntax syntax = chat::parse(source, file);
    const chat::Values none;
    const auto variables = std::make_shared<const chat::Dict>();
    const i64 before = run.held_bytes();
    run.begin();
    try {
      chat::Interpreter(run, variables, none).run(syntax.body);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("bytes at once"));
    }
    EXPECT_EQ(run.held_bytes(), before) << source;
  }
}

}  // namespace
}  // namespace spillway::data::chat_budget_test
