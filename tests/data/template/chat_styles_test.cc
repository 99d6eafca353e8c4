// Compares chat templates in the styles of published ones, and a selection of random expressions
// and blocks, with what transformers rendered (tests/peers/chat_templates.py --write).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data/template/chat_template.h"
#include "tests/data/template/support_chat.h"

namespace spillway::data::chat_styles_test {
namespace {

using test::Json, test::read_json, test::read_text;

constexpr std::time_t kNow = 1753433100;  // the time of rendering, on 25 July 2025

TEST(ChatStyles, RenderWhatTransformersRenders) {
  const Json conversations = read_json("style_conversations.json");
  int texts = 0;
  for (const Json& tested : read_json("styles.json")) {
    const std::string name = tested["template"], conversation = tested["conversation"];
    SCOPED_TRACE(name + " " + conversation);
    const ChatTemplate chat(read_text("styles/" + name + ".jinja"), name);
    const auto render = [&] {
      return chat.render(conversations[conversation]["messages"], conversations[conversation]["variables"], tested["add_generation_prompt"],
                         kNow);
    };
    if (tested.contains("error")) {
      test::error_of(render);
      continue;
    }
    ++texts;
    const auto rendered = render();
    EXPECT_EQ(rendered.text, tested["text"].get<std::string>());
    Json spans = Json::array();
    for (const ByteRange& span : rendered.assistant) spans.push_back({span.begin, span.end});
    EXPECT_EQ(spans, tested["spans"]);
  }
  EXPECT_GT(texts, 100);
}

TEST(ChatStyles, ConstructsAreWhatTransformersMakesOfThem) {
  const Json all = read_json("constructs.json");
  for (const Json& tested : all["cases"]) {
    const std::string source = tested["template"];
    SCOPED_TRACE(source);
    const auto render = [&] { return ChatTemplate(source, "template").render(all["messages"], all["variables"], false, kNow); };
    if (tested.contains("error")) {
      EXPECT_FALSE(test::error_of(render).empty());
      continue;
    }
    const auto rendered = render();
    EXPECT_EQ(rendered.text, tested["text"].get<std::string>());
    Json spans = Json::array();
    for (const ByteRange& span : rendered.assistant) spans.push_back({span.begin, span.end});
    EXPECT_EQ(spans, tested["spans"]);
  }
}

// Returns whether `error` is one of the messages with which Spillway refuses constructs that Python would evaluate.
bool is_refused_by_name(const std::string& error) {
  for (const char* words : {"64 bits", "that can be printed", "is known, got", "a Python attribute", "{% break %}", "{% continue %}",
                            "for a value of type", "as argument 0", "not subscriptable", "a real number is required", "inside its own loop",
                            "that this program supports", "dicts to compare", "at least 0"}) {
    if (error.find(words) != error.npos) return true;
  }
  return false;
}

TEST(ChatStyles, ExpressionsAreWhatJinjaMakesOfThem) {
  const Json all = read_json("expressions.json");
  const Json messages = Json::parse(R"([{"role": "user", "content": "x"}])");
  int texts = 0;
  for (const Json& tested : all["cases"]) {
    const std::string source = tested["template"];
    const auto render = [&] { return ChatTemplate(source, "template").render(messages, all["variables"], false, kNow).text; };
    if (tested.contains("error")) {
      if (tested["error"].get<std::string>().find("No filter named") == std::string::npos) {
        EXPECT_FALSE(test::error_of(render).empty()) << source;
      }
      continue;
    }
    try {
      EXPECT_EQ(render(), tested["text"].get<std::string>()) << source;
      ++texts;
    } catch (const Error& error) {
      EXPECT_TRUE(is_refused_by_name(error.what())) << source << "\n" << error.what();
    }
  }
  EXPECT_GT(texts, 400);
}

}  // namespace
}  // namespace spillway::data::chat_styles_test
