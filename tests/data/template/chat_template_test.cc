// Compares rendered chat templates with what transformers renders, byte for byte. The
// templates are short, in known styles, and the conversations are difficult ones.
#include "data/template/chat_template.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/data/template/support_chat.h"

namespace spillway::data::chat_template_test {
namespace {

using test::Json, test::read_json, test::read_text;

TEST(ChatTemplate, RendersWhatTransformersRenders) {
  const Json conversations = read_json("conversations.json"), rendered = read_json("rendered.json");
  int texts = 0, errors = 0;
  for (const Json& tested : rendered["cases"]) {
    const std::string name = tested["template"], conversation = tested["conversation"];
    SCOPED_TRACE(name + " " + conversation + (tested["add_generation_prompt"] ? " prompt" : ""));
    const ChatTemplate chat(read_text("templates/" + name + ".jinja"), name + ".jinja");
    const auto render = [&] {
      return chat.render(conversations["conversations"][conversation], conversations["variables"][name], tested["add_generation_prompt"]);
    };
    if (tested.contains("error")) {
      ++errors;
      const std::string message = tested.value("message", "");
      EXPECT_EQ(test::error_of(render).substr(0, 16 + name.size()), "[chat template] " + name);
      EXPECT_THAT(test::error_of(render), ::testing::EndsWith(message));
      continue;
    }
    ++texts;
    const auto got = render();
    EXPECT_EQ(got.text, tested["text"].get<std::string>());
    EXPECT_EQ(got.has_generation_blocks, tested.contains("assistant_bytes"));
    std::vector<ByteRange> spans;
    for (const Json& span : tested.value("assistant_bytes", Json::array())) spans.push_back({span[0].get<i64>(), span[1].get<i64>()});
    EXPECT_EQ(got.assistant, spans);
  }
  EXPECT_EQ(texts, 212);
  EXPECT_EQ(errors, 40);
}

}  // namespace
}  // namespace spillway::data::chat_template_test
