// Fuzzes chat templates: whatever a template or a conversation contains, it is soon rendered or refused with Error(data).
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "data/template/chat_template.h"
#include "tests/data/template/support_chat.h"

namespace spillway::data::chat_fuzz_test {
namespace {

using test::Json, test::read_json, test::read_text;
using Random = std::mt19937_64;

size_t below(Random& random, size_t n) { return random() % n; }

std::vector<std::string> templates() {
  std::vector<std::string> all;
  for (const char* name :
       {"templates/features", "templates/gemma", "templates/llama3", "templates/mistral", "styles/command_r", "styles/deepseek",
        "styles/gemma3", "styles/hermes_olmo", "styles/llama31", "styles/mistral_tools", "styles/qwen3"}) {
    all.push_back(read_text(std::string(name) + ".jinja"));
  }
  const Json expressions = read_json("expressions.json");
  for (const Json& tested : expressions["cases"]) all.push_back(tested["template"]);
  return all;
}

constexpr std::array kSoup = {"{{",        "}}",       "{%",         "%}",      "{#",        "#}",         "{%-",
                              "-%}",       "{{-",      "-}}",        "+%}",     "for ",      " in ",       "if ",
                              "elif ",     "else ",    "endif",      "endfor",  "set ",      "endset",     "macro ",
                              "endmacro",  "call ",    "endcall",    "filter ", "endfilter", "generation", "endgeneration",
                              "recursive", "with ",    "endwith",    "print ",  "cycler(",   "joiner(",    "caller",
                              "|e",        "|safe",    "raw",        "endraw",  "break",     "continue",   "x",
                              "loop",      "messages", "namespace(", "range(",  "(",         ")",          "[",
                              "]",         "{",        "}",          ",",       ":",         "|",          ".",
                              "~",         "+",        "-",          "*",       "**",        "//",         "%",
                              "==",        "<",        "=",          " is ",    " not ",     " and ",      " or ",
                              "'a'",       "\"",       "\\",         "12",      "1.5e3",     "0x",         "\n",
                              " ",         "\xc3\xa9"};

std::string soup(Random& random) {
  std::string text;
  for (size_t i = 1 + below(random, 40); i > 0; --i) text += kSoup[below(random, kSoup.size())];
  return text;
}

std::string mutated(std::string text, Random& random, const std::vector<std::string>& others) {
  for (size_t i = 1 + below(random, 4); i > 0 && !text.empty(); --i) {
    const size_t at = below(random, text.size()), length = 1 + below(random, std::min<size_t>(20, text.size() - at));
    switch (below(random, 5)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, kSoup[below(random, kSoup.size())]);
        break;
      case 2:
        text[at] = static_cast<char>(random());
        break;
      case 3:
        text.insert(at, text.substr(below(random, text.size()), length));
        break;
      default: {
        const std::string& other = others[below(random, others.size())];
        text = text.substr(0, at) + other.substr(below(random, other.size() + 1));
      }
    }
  }
  return text;
}

Json any_value(Random& random, int depth) {
  switch (below(random, depth > 0 ? 9 : 7)) {
    case 0:
      return nullptr;
    case 1:
      return below(random, 2) == 0;
    case 2:
      return static_cast<i64>(random());
    case 3:
      return std::ldexp(static_cast<double>(static_cast<i64>(random())), static_cast<int>(below(random, 40)) - 80);
    case 4:
      return "\xe4\xb8\x96\n{{ x }}";
    case 5:
      return "";
    case 6:
      return "user";
    case 7:
      return Json::array({any_value(random, depth - 1), any_value(random, depth - 1)});
    default:
      return Json{{"type", any_value(random, depth - 1)}, {"text", any_value(random, depth - 1)}, {"items", any_value(random, depth - 1)}};
  }
}

Json any_messages(Random& random) {
  Json messages = Json::array();
  for (size_t i = 1 + below(random, 4); i > 0; --i) {
    Json message = {{"role", std::array{"user", "assistant", "system", "tool"}[below(random, 4)]}, {"content", "text"}};
    if (below(random, 3) == 0) message["content"] = any_value(random, 3);
    if (below(random, 3) == 0) message["tool_calls"] = any_value(random, 3);
    if (below(random, 20) == 0) message = any_value(random, 2);
    messages.push_back(std::move(message));
  }
  return messages;
}

std::string repeated(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

// Returns a random count, width, index or number: a small one, or one near the limits of memory, 32 bits or 64 bits.
std::string count(Random& random) {
  constexpr std::array<i64, 14> kCounts = {0,
                                           1,
                                           2,
                                           5,
                                           80,
                                           1000,
                                           65536,
                                           1 << 20,
                                           i64{1} << 31,
                                           i64{1} << 32,
                                           i64{1} << 53,
                                           i64{1} << 62,
                                           std::numeric_limits<i64>::max() - 1,
                                           std::numeric_limits<i64>::max()};
  const std::string n = std::to_string(kCounts[below(random, kCounts.size())]);
  return below(random, 4) == 0 ? "(-" + n + ")" : n;
}

// Returns a random expression of a chat template whose value may be huge.
std::string huge(Random& random, int depth) {
  if (depth == 0) return std::array{"'ab'", "[1]", "'\u00e9\n'", "(1, 'x')", "range(5)", "messages", "7", "2.5"}[below(random, 8)];
  const std::string x = "(" + huge(random, depth - 1) + ")", n = count(random), m = count(random), k = count(random);
  switch (below(random, 13)) {
    case 0:
      return x + " * " + n;
    case 1:
      return n + std::array{" + ", " - ", " * ", " // ", " % ", " / ", " ** "}[below(random, 7)] + m;
    case 2:
      return x + "[" + n + ":" + m + ":" + k + "]";
    case 3:
      return "range(" + n + ", " + m + ", " + k + ")[" + m + "::" + n + "]";
    case 4:
      return x + " | " + std::array{"center", "indent", "batch", "slice", "truncate", "round"}[below(random, 6)] + "(" + n + ")" +
             (below(random, 2) == 0 ? " | list" : "");
    case 5:
      return x + " | tojson(indent=" + n + ")";
    case 6:
      return "(" + x + " | string)." + std::array{"zfill", "center", "ljust", "rjust"}[below(random, 4)] + "(" + n + ")";
    case 7:
      return "(" + x + " | string)." + std::array{"replace('a', 'bb', ", "split('b', ", "find('b', ", "count('a', "}[below(random, 4)] + n +
             ")";
    case 8:
      return "'{:" + n + "}|{:." + m + "f}'.format(" + x + ", 1.5)";
    case 9:
      return "'%" + n + "s|%." + m + "f' % (" + x + ", 1.5)";
    case 10:
      return x + " in " + huge(random, depth - 1);
    case 11:
      return x + " | " +
             std::array{
                 "list", "join(',')", "sort", "unique | list", "reverse", "string", "length", "sum", "tojson", "e"}[below(random, 10)];
    default:
      return x + " ~ " + huge(random, depth - 1);
  }
}

// Returns a template of nested blocks and expressions, sometimes deeper than the limit allows.
std::string deep(Random& random) {
  constexpr std::array<std::array<const char*, 2>, 10> kKinds = {{{"{% if x %}", "{% endif %}"},
                                                                  {"{% for x in [[1]] recursive %}", "{% endfor %}"},
                                                                  {"{% with x = [x] %}", "{% endwith %}"},
                                                                  {"{% macro x() %}", "{% endmacro %}{{ x() }}"},
                                                                  {"{% set x %}", "{% endset %}{{ x }}"},
                                                                  {"{% filter e %}", "{% endfilter %}"},
                                                                  {"{% generation %}", "{% endgeneration %}"},
                                                                  {"{{ [", "] }}"},
                                                                  {"{% call x() %}", "{% endcall %}"},
                                                                  {"{{ x if ", " else x }}"}}};
  std::string open, close;
  for (size_t parts = 1 + below(random, 4); parts > 0; --parts) {
    const auto& kind = kKinds[below(random, kKinds.size())];
    const size_t times = 1 + below(random, 90);
    open += repeated(kind[0], times);
    close.insert(0, repeated(kind[1], times));
  }
  return open + "{{ x }}" + close;
}

// Returns a template whose scopes have many names that are often looked up.
std::string crowded(Random& random) {
  const size_t names = 1 + below(random, 2000);
  const auto name = [&] { return std::string(1 + below(random, 3), 'n') + std::to_string(below(random, names)); };
  std::string sets, parameters, reads;
  for (size_t i = 0; i < names; ++i) sets += "{% set " + name() + " = " + std::to_string(i) + " %}";
  for (size_t i = below(random, 1200); i > 0; --i) parameters += "p" + std::to_string(i) + "=" + name() + ",";
  for (size_t i = 0; i < 20; ++i) reads += "{{ " + name() + " }}";
  const std::string loop = "{% for i in range(" + std::to_string(below(random, 60)) + ") %}", end = "{% endfor %}";
  switch (below(random, 4)) {
    case 0:
      return sets + loop + reads + end;
    case 1:
      return loop + "{% if i > 0 %}{% continue %}{% endif %}" + reads + sets + end;
    case 2:
      return "{% macro m(" + parameters + "z=0) %}" + reads + sets + "{% endmacro %}" + loop + "{{ m() }}" + end;
    default:
      return "{% set ns = namespace(" + parameters + "z=0) %}" + loop + "{% set ns." + name() + " = ns.p7 %}{{ dict(" + parameters +
             "z=1) }}" + end;
  }
}

// Renders a template and returns whether that succeeded. Rendering that takes endless time or memory makes the test fail.
bool survives(const std::string& source, const Json& messages, const Json& variables) {
  try {
    ChatTemplate(source, "t").render(messages, variables, true, 0);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::data) << error.what() << "\n" << source;
    return false;
  }
}

void fuzz(u64 seed, int cases) {
  Random random(seed);
  const auto seeds = templates();
  const Json variables = read_json("expressions.json")["variables"];
  int rendered = 0;
  for (int i = 0; i < cases; ++i) {
    const std::string source = i % 5 == 0 ? soup(random) : mutated(seeds[below(random, seeds.size())], random, seeds);
    rendered += survives(source, any_messages(random), variables);
  }
  EXPECT_GT(rendered, cases / 50);
}

// Renders templates that are made to be expensive, some of which are damaged. Each must render or be refused.
void fuzz_limits(u64 seed, int cases) {
  Random random(seed);
  const Json variables = read_json("expressions.json")["variables"];
  int rendered = 0;
  for (int i = 0; i < cases; ++i) {
    const size_t kind = below(random, 8);
    std::string source = kind == 0   ? deep(random)
                         : kind == 1 ? crowded(random)
                                     : "{{ " + huge(random, 1 + static_cast<int>(below(random, 3))) + " }}";
    if (below(random, 10) == 0) source = mutated(source, random, {source});
    rendered += survives(source, any_messages(random), variables);
  }
  EXPECT_GT(rendered, cases / 10);
}

TEST(ChatFuzz, RendersOrRefuses) { fuzz(1, 3000); }

TEST(ChatFuzz, StaysWithinItsLimits) { fuzz_limits(2, 300); }

class SoakChatFuzz : public ::testing::TestWithParam<int> {};
TEST_P(SoakChatFuzz, RendersOrRefuses) { fuzz(static_cast<u64>(GetParam()), 200'000); }
TEST_P(SoakChatFuzz, StaysWithinItsLimits) { fuzz_limits(static_cast<u64>(GetParam()), 10'000); }
INSTANTIATE_TEST_SUITE_P(Seeds, SoakChatFuzz, ::testing::Range(100, 110));

}  // namespace
}  // namespace spillway::data::chat_fuzz_test
