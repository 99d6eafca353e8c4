// Reads conversations in four formats: OpenAI's fine-tuning format, TRL's, ShareGPT's and
// LLaMA-Factory's. Each format becomes the messages and variables that a chat template expects.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "data/rows/layouts.h"

namespace spillway::data {
namespace {

using Json = JsonLine::Json;

constexpr std::pair<const char*, const char*> kSpeakers[] = {
    {"human", "user"},        {"user", "user"},        {"gpt", "assistant"},  {"assistant", "assistant"},
    {"chatgpt", "assistant"}, {"bing", "assistant"},   {"bard", "assistant"}, {"function_call", "assistant"},
    {"system", "system"},     {"observation", "tool"}, {"tool", "tool"}};

// The parameters of transformers' apply_chat_template that are not variables of a template, so a row may not set them.
constexpr std::array kNoVariables = {"messages",
                                     "conversation",
                                     "add_generation_prompt",
                                     "chat_template",
                                     "tokenize",
                                     "continue_final_message",
                                     "return_assistant_tokens_mask",
                                     "return_dict",
                                     "padding",
                                     "return_tensors",
                                     "tokenizer_kwargs",
                                     "max_length",
                                     "truncation",
                                     "processor_kwargs"};

// Returns the row's list of tools. The list may also be written as a JSON text. Returns nothing if the key `tools` is missing, null or "".
std::optional<Json> tools_of(const JsonLine& line) {
  const Json* value = line.given("tools");
  if (!value || (value->is_string() && value->get_ref<const std::string&>().empty())) return {};
  Json tools = *value;
  if (value->is_string()) {
    const auto& text = value->get_ref<const std::string&>();
    tools = parse_ordered_json(text);
    if (tools.is_discarded()) line.reject_at({"tools"}, "expected `tools` to be a list, or a text with a list in JSON, got something else");
  }
  if (!tools.is_array()) line.reject({"tools"}, "a list as `tools`", &tools);
  for (const Json& tool : tools) {
    if (!tool.is_object()) line.reject({"tools"}, "objects in `tools`", &tool);
  }
  return tools;
}

// Wraps each tool that is a bare function (an object without "type") into {"type": "function"}, as LLaMA-Factory's templates do.
void wrap_functions(Json& tools) {
  for (Json& tool : tools) {
    if (!tool.contains("type")) tool = Json{{"type", "function"}, {"function", std::move(tool)}};
  }
}

// Reads the template variables of a row. If a variable is given both as a key of the row and in chat_template_kwargs, the latter value is
// used, as in TRL.
void read_variables(const JsonLine& line, bool bare_functions, Row& row) {
  Json variables = Json::object();
  if (auto tools = tools_of(line)) {
    if (bare_functions) wrap_functions(*tools);
    variables["tools"] = std::move(*tools);
  }
  if (const Json* documents = line.given("documents")) {
    if (!documents->is_array()) line.reject({"documents"}, "a list as `documents`", documents);
    variables["documents"] = *documents;
  }
  if (const Json* more = line.given("chat_template_kwargs")) {
    if (!more->is_object()) line.reject({"chat_template_kwargs"}, "an object as `chat_template_kwargs`", more);
    for (const auto& [key, value] : more->items()) {
      if (std::ranges::find(kNoVariables, key) != kNoVariables.end())
        line.reject_at({"chat_template_kwargs", key},
                       fmt::format("expected variables of the chat template in `chat_template_kwargs`, got `{}`, which is not one", key));
      variables[key] = value;
    }
  }
  if (!variables.empty()) row.variables = std::make_shared<const Json>(std::move(variables));
}

// Returns true if a message is marked as excluded from the loss.
bool is_left_out(const JsonLine& line, const Json& message, const JsonPath& path, bool assistant) {
  const auto at = [&](const char* key) {
    JsonPath whole = path;
    whole.emplace_back(key);
    return whole;
  };
  const Json *weight = JsonLine::find(message, "weight"), *train = JsonLine::find(message, "train");
  if (weight && !weight->is_null() && !(weight->is_number() && (*weight == 0 || *weight == 1)))
    line.reject_at(at("weight"), fmt::format("expected 0 or 1 as `weight` of a message, got {}", weight->dump().substr(0, 40)));
  if (train && !train->is_null() && !train->is_boolean()) line.reject(at("train"), "true or false as `train` of a message", train);
  if (train && *train == true && !assistant)
    line.reject_at(at("train"), "expected `train: true` only on the assistant's messages, got `train: true` on another message");
  return assistant && ((weight && *weight == 0) || (train && *train == false));
}

void note_left_out(const JsonLine& line, const Json& items, const char* key, Row& row, const std::vector<bool>& assistant) {
  std::vector<u8> left_out(assistant.size(), 0);
  for (size_t i = 0; i < items.size(); ++i) {
    const size_t message = i + assistant.size() - items.size();
    left_out[message] = is_left_out(line, items[i], {key, i}, assistant[message]);
  }
  if (std::ranges::find(left_out, 1) != left_out.end()) row.left_out = std::move(left_out);
}

// Parses LLaMA-Factory's tool calls: a JSON text that holds {"name", "arguments"} or a list of such objects.
Json tool_calls_of(const JsonLine& line, const std::string& text, const JsonPath& path) {
  Json parsed = parse_ordered_json(text);
  if (parsed.is_object()) parsed = Json::array({std::move(parsed)});
  Json calls = Json::array();
  for (Json& call : parsed) {
    if (!call.is_object() || !call.contains("name")) break;
    calls.push_back({{"type", "function"}, {"function", std::move(call)}});
  }
  if (calls.empty() || calls.size() != parsed.size())
    line.reject_at(path, R"(expected {"name", "arguments"} in JSON as the value of a function_call, got something else)");
  return calls;
}

Json message_of(const JsonLine& line, const Json& item, size_t i) {
  const JsonPath path = {"conversations", i};
  const std::string& from = line.text_in(item, path, "from");
  const auto* speaker = std::find_if(std::begin(kSpeakers), std::end(kSpeakers), [&](const auto& known) { return known.first == from; });
  if (speaker == std::end(kSpeakers))
    line.reject_at({"conversations", i, "from"},
                   "expected human, user, gpt, assistant, chatgpt, bing, bard, system, function_call, observation or tool as `from`, got "
                   "another speaker");
  const std::string& value = line.text_in(item, path, "value");
  if (from == "function_call")
    return {{"role", "assistant"}, {"content", ""}, {"tool_calls", tool_calls_of(line, value, {"conversations", i, "value"})}};
  return {{"role", speaker->second}, {"content", value}};
}

void note_unread_of_items(const Json& items, Row& row) {
  for (const Json& item : items) {
    for (const auto& [key, value] : item.items()) {
      const std::string name = "conversations[]." + key;
      const bool known = key == "from" || key == "value" || key == "weight" || key == "train" || value.is_null();
      if (!known && std::ranges::find(row.unread, name) == row.unread.end()) row.unread.push_back(name);
    }
  }
}

std::vector<bool> assistants(const Json& messages) {
  std::vector<bool> assistant;
  for (const Json& message : messages) assistant.push_back(message["role"] == "assistant");
  return assistant;
}

}  // namespace

void read_messages(JsonLine& line, Row& row) {
  const Json& items = line.list("messages");
  for (size_t i = 0; i < items.size(); ++i) {
    const JsonPath path = {"messages", i};
    line.text_in(items[i], path, "role");
    const Json* content = JsonLine::find(items[i], "content");
    const Json* calls = JsonLine::find(items[i], "tool_calls");
    const bool may_lack = calls && calls->is_array() && (!content || content->is_null());
    if (!may_lack && (!content || (!content->is_string() && !content->is_array())))
      line.reject({"messages", i, "content"}, "a text or a list as `content`", content);
  }
  note_left_out(line, items, "messages", row, assistants(items));
  read_variables(line, false, row);
  row.messages = std::make_shared<const Json>(line.take("messages"));
}

void read_conversations(const JsonLine& line, Row& row) {
  const Json& items = line.list("conversations");
  Json messages = Json::array();
  const std::string system = line.text_if_any("system");
  for (size_t i = 0; i < items.size(); ++i) {
    Json message = message_of(line, items[i], i);
    if (i == 0 && !system.empty() && message["role"] != "system") messages.push_back({{"role", "system"}, {"content", system}});
    messages.push_back(std::move(message));
  }
  note_left_out(line, items, "conversations", row, assistants(messages));
  note_unread_of_items(items, row);
  read_variables(line, true, row);
  row.messages = std::make_shared<const Json>(std::move(messages));
}

}  // namespace spillway::data
