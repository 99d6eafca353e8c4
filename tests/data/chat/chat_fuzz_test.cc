// Whatever stands in a template or a conversation, it is rendered or refused with Error(data), soon.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "data/chat/chat_template.h"
#include "tests/data/chat/support_chat.h"

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

// True when it was rendered.
bool survives(const std::string& source, const Json& messages, const Json& variables) {
  const auto begin = std::chrono::steady_clock::now();
  bool rendered = false;
  try {
    ChatTemplate(source, "t").render(messages, variables, true, 0);
    rendered = true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::data) << error.what() << "\n" << source;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took.count(), 60) << source;
  return rendered;
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

TEST(ChatFuzz, RendersOrRefuses) { fuzz(1, 3000); }

class SoakChatFuzz : public ::testing::TestWithParam<int> {};
TEST_P(SoakChatFuzz, RendersOrRefuses) { fuzz(static_cast<u64>(GetParam()), 200'000); }
INSTANTIATE_TEST_SUITE_P(Seeds, SoakChatFuzz, ::testing::Range(100, 110));

}  // namespace
}  // namespace spillway::data::chat_fuzz_test
