// Tests how the chat template in a model folder is found, under which name, and which
// special tokens it reads. Also tests loss masks that are computed from spans of text.
#include "data/template/find_chat_template.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "data/template/token_mask.h"
#include "tests/data/template/support_chat.h"
#include "tests/support/temporary_folder.h"

namespace spillway::data::find_chat_template_test {
namespace {

using spillway::test::TemporaryFolder;
using test::Json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string rendered(const std::optional<ChatTemplate>& chat, const Json& variables = Json::object()) {
  return chat ? chat->render(Json::parse(R"([{"role": "user", "content": "hi"}])"), variables, false).text : "none";
}

TEST(FindChatTemplate, LooksWhereTransformersLooks) {
  const TemporaryFolder folder;
  EXPECT_EQ(rendered(find_chat_template(folder.path())), "none");
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "default", "template": "list"}, {"name": "rag", "template": "r"}]})");
  EXPECT_EQ(rendered(find_chat_template(folder.path())), "list");
  EXPECT_EQ(rendered(find_chat_template(folder.path(), "rag")), "r");
  EXPECT_THAT(chat_template_names(folder.path()), ElementsAre("default", "rag"));
  // In transformers a processor reads chat_template.json first, but a tokenizer never reads that file.
  folder.write("chat_template.json", R"({"chat_template": "json"})");
  EXPECT_EQ(rendered(find_chat_template(folder.path())), "list");
  folder.write("tokenizer_config.json", "{}");
  EXPECT_EQ(rendered(find_chat_template(folder.path())), "json");
  folder.write("chat_template.jinja", "jinja\n");
  folder.write("additional_chat_templates/tool_use.jinja", "tools");
  EXPECT_EQ(rendered(find_chat_template(folder.path())), "jinja");
  EXPECT_EQ(rendered(find_chat_template(folder.path(), "tool_use")), "tools");
  EXPECT_EQ(rendered(find_chat_template(folder.path(), "../chat_template")), "none");
  EXPECT_THAT(chat_template_names(folder.path()), ElementsAre("default", "tool_use"));
}

TEST(FindChatTemplate, ReadsTheTokensOfBothConfigurations) {
  for (const char* kind : {"string", "list"}) {
    const TemporaryFolder folder;
    folder.write("tokenizer_config.json", test::read_text(std::string("tokenizer_config_") + kind + ".json"));
    const Json tokens = special_token_variables(folder.path());
    EXPECT_EQ(tokens, Json::parse(R"({"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"})")) << kind;
    EXPECT_THAT(rendered(find_chat_template(folder.path()), tokens), HasSubstr("<|begin_of_text|><|start_header_id|>user")) << kind;
  }
  const TemporaryFolder folder;
  folder.write("tokenizer_config.json", R"({"bos_token": "a", "eos_token": null, "add_bos_token": true})");
  folder.write("special_tokens_map.json", R"({"eos_token": {"content": "b"}, "pad_token": "c", "additional_special_tokens": ["d"]})");
  EXPECT_EQ(special_token_variables(folder.path()), Json::parse(R"({"bos_token": "a", "eos_token": "b", "pad_token": "c"})"));
}

// The expected values are what AutoTokenizer of transformers finds in each folder (tests/peers/chat_folders.py).
TEST(FindChatTemplate, FindsWhatTransformersFinds) {
  for (const Json& tested : test::read_json("folders.json")) {
    SCOPED_TRACE(tested["files"].dump());
    const TemporaryFolder folder;
    for (const auto& [name, text] : tested["files"].items()) folder.write(name, text.get<std::string>());
    EXPECT_EQ(nlohmann::json(special_token_variables(folder.path())), nlohmann::json(tested["tokens"]));
    const auto chat = find_chat_template(folder.path());
    ASSERT_EQ(chat.has_value(), tested["template"].is_string());
    if (!chat) continue;
    EXPECT_EQ(chat->source(), tested["template"]);
    EXPECT_EQ(chat->for_tools() ? chat->for_tools()->source() : chat->source(), tested["with_tools"]);
  }
}

TEST(FindChatTemplate, ConversationsWithToolsHaveTheirOwnTemplate) {
  const TemporaryFolder folder;
  folder.write("tokenizer_config.json", R"({"chat_template": {"default": "plain", "tool_use": "{{ tools | length }} tools"}})");
  EXPECT_EQ(rendered(find_chat_template(folder.path())), "plain");
  EXPECT_EQ(rendered(find_chat_template(folder.path()), {{"tools", nullptr}}), "plain");
  EXPECT_EQ(rendered(find_chat_template(folder.path()), {{"tools", Json::array({1, 2})}}), "2 tools");
  EXPECT_EQ(rendered(find_chat_template(folder.path()), {{"tools", Json::array()}}), "0 tools");
  EXPECT_EQ(rendered(find_chat_template(folder.path(), "default"), {{"tools", Json::array({1, 2})}}), "plain");
}

TEST(FindChatTemplate, SaysWhichFileIsBroken) {
  const TemporaryFolder folder;
  const auto error = [&] { return test::error_of([&] { find_chat_template(folder.path()); }); };
  folder.write("tokenizer_config.json", "{\n\"chat_template\": ");
  EXPECT_THAT(error(), HasSubstr("tokenizer_config.json: expected JSON, got a syntax error in line 2, column"));
  folder.write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_THAT(error(), HasSubstr("expected a text, a list or an object as `chat_template`, got number"));
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  EXPECT_THAT(error(), HasSubstr("expected a `name` and a `template`"));
  folder.write("tokenizer_config.json", R"({"chat_template": {"rag": 5}})");
  EXPECT_THAT(error(), HasSubstr("`rag`"));
  folder.write("tokenizer_config.json", "[]");
  EXPECT_THAT(error(), HasSubstr("got array"));
  folder.write("chat_template.jinja", "{{");
  EXPECT_THAT(error(), HasSubstr("chat_template.jinja, line 1: expected an expression"));
}

TEST(TokenMask, MarksWhatOverlaps) {
  const std::vector<ByteRange> tokens = {{0, 2}, {2, 5}, {5, 5}, {5, 6}, {6, 9}, {9, 12}};
  EXPECT_THAT(mask_of_spans(tokens, std::vector<ByteRange>{}), ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(mask_of_spans(tokens, std::vector<ByteRange>{{4, 6}}), ElementsAre(0, 1, 0, 1, 0, 0));
  EXPECT_THAT(mask_of_spans(tokens, std::vector<ByteRange>{{0, 1}, {1, 1}, {7, 7}, {8, 10}}), ElementsAre(1, 0, 0, 0, 1, 1));
  EXPECT_THAT(mask_of_spans(tokens, std::vector<ByteRange>{{0, 12}}), ElementsAre(1, 1, 0, 1, 1, 1));
  // Several tokens may have the span of one character, if a byte-level tokenizer splits the character's bytes.
  const std::vector<ByteRange> shared = {{0, 3}, {0, 3}, {3, 4}};
  EXPECT_THAT(mask_of_spans(shared, std::vector<ByteRange>{{1, 2}}), ElementsAre(1, 1, 0));
  EXPECT_THROW(mask_of_spans(tokens, std::vector<ByteRange>{{4, 6}, {0, 1}}), Error);
}

}  // namespace
}  // namespace spillway::data::find_chat_template_test
