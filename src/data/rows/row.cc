#include "data/rows/row.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/line_column.h"
#include "data/rows/json_place.h"

namespace spillway::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDeepest = 200;
// In the order of RowLayout.
constexpr std::array<const char*, 6> kNames = {"text", "completion", "messages", "alpaca", "sharegpt", "tokens"};
// By these keys a layout is recognized.
constexpr std::array<const char*, 6> kKeys = {"text", "prompt", "messages", "instruction", "conversations", "input_ids"};
constexpr i64 kNotCounted = -100;  // PyTorch's ignore_index
constexpr i64 kMaxId = std::numeric_limits<i32>::max();

constexpr std::pair<const char*, const char*> kSpeakers[] = {{"human", "user"},          {"user", "user"},         {"gpt", "assistant"},
                                                             {"assistant", "assistant"}, {"chatgpt", "assistant"}, {"bing", "assistant"},
                                                             {"bard", "assistant"},      {"system", "system"}};

class Line {
 public:
  Line(std::string_view line, const std::string& file, i64 number) : line_(line), file_(file), number_(number) {
    if (json_depth(line) > kDeepest) reject(0, fmt::format("expected values nested at most {} deep, got deeper ones", kDeepest));
    try {
      json_ = Json::parse(line);
    } catch (const Json::parse_error& error) {
      reject(error.byte > 0 ? error.byte - 1 : 0, "expected one JSON object, got " + reason(error.what()));
    }
    if (!json_.is_object()) reject(0, std::string("expected an object, got ") + shown(json_));
  }

  Row row(std::optional<RowLayout> layout) {
    Row row;
    row.layout = layout ? *layout : recognized();
    switch (row.layout) {
      case RowLayout::text:
        row.text = text("text");
        break;
      case RowLayout::completion:
        row.prompt = text("prompt");
        row.completion = text("completion");
        break;
      case RowLayout::messages:
        row.messages = messages();
        break;
      case RowLayout::alpaca:
        alpaca(row);
        break;
      case RowLayout::sharegpt:
        row.messages = conversations();
        break;
      case RowLayout::tokens:
        tokens(row);
        break;
    }
    return row;
  }

 private:
  static std::string shown(const Json& value) {
    if (value.is_array()) return "a list";
    if (value.is_object()) return "an object";
    if (value.is_string()) return "a text";
    if (value.is_null()) return "null";
    return value.is_boolean() ? "a boolean" : "a number";
  }

  // The parser's own words behind its error's number and place.
  static std::string reason(const std::string& what) {
    const size_t at = what.rfind(" - ");
    const std::string tail = at == what.npos ? "" : what.substr(at + 3);
    return tail.empty() ? "something else" : "an error (" + tail.substr(0, 120) + ")";
  }

  [[noreturn]] void reject(size_t byte, const std::string& what) const {
    const std::string place = line_and_column(line_, byte + 1);  // "line 1, column C"
    throw Error(ErrorCode::data, fmt::format("[data] {}, line {}{}: {}", file_, number_, place.substr(place.find(',')), what));
  }

  [[noreturn]] void reject(const JsonPath& path, const std::string& expected, const Json* got) const {
    reject(json_place(line_, path), fmt::format("expected {}, got {}", expected, got ? shown(*got) : "none"));
  }

  static const Json* find(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() ? nullptr : &*found;
  }

  RowLayout recognized() const {
    std::optional<RowLayout> layout;
    for (size_t i = 0; i < kKeys.size(); ++i) {
      if (!json_.contains(kKeys[i])) continue;
      if (layout)
        reject(json_place(line_, {kKeys[i]}), fmt::format("expected the keys of one layout, got `{}` and `{}`: name the layout",
                                                          kKeys[static_cast<size_t>(*layout)], kKeys[i]));
      layout = static_cast<RowLayout>(i);
    }
    if (!layout) reject(0, "expected a key of a known layout (text, prompt, messages, instruction, conversations, input_ids), got none");
    return *layout;
  }

  const std::string& text_in(const Json& object, JsonPath path, const char* key) const {
    const Json* value = find(object, key);
    path.emplace_back(key);
    if (!value || !value->is_string()) reject(path, fmt::format("a text as `{}`", key), value);
    return value->get_ref<const std::string&>();
  }

  const std::string& text(const char* key) const { return text_in(json_, {}, key); }

  // The items of a list that is not empty, each an object.
  const Json& list(const char* key) const {
    const Json* items = find(json_, key);
    if (!items || !items->is_array()) reject({key}, fmt::format("a list as `{}`", key), items);
    if (items->empty()) reject(json_place(line_, {key}), fmt::format("expected at least one item in `{}`, got none", key));
    for (size_t i = 0; i < items->size(); ++i) {
      if (!(*items)[i].is_object()) reject({key, i}, fmt::format("an object as item {} of `{}`", i + 1, key), &(*items)[i]);
    }
    return *items;
  }

  std::shared_ptr<const Json> messages() {
    const Json& items = list("messages");
    for (size_t i = 0; i < items.size(); ++i) {
      const JsonPath path = {"messages", i};
      text_in(items[i], path, "role");
      const Json* content = find(items[i], "content");
      const Json* calls = find(items[i], "tool_calls");
      const bool may_lack = calls && calls->is_array() && (!content || content->is_null());
      if (!may_lack && (!content || (!content->is_string() && !content->is_array())))
        reject({"messages", i, "content"}, "a text or a list as `content`", content);
    }
    return std::make_shared<const Json>(std::move(json_["messages"]));
  }

  std::shared_ptr<const Json> conversations() {
    const Json& items = list("conversations");
    Json messages = Json::array();
    for (size_t i = 0; i < items.size(); ++i) {
      const JsonPath path = {"conversations", i};
      const std::string& from = text_in(items[i], path, "from");
      const auto* speaker =
          std::find_if(std::begin(kSpeakers), std::end(kSpeakers), [&](const auto& known) { return known.first == from; });
      if (speaker == std::end(kSpeakers))
        reject(json_place(line_, {"conversations", i, "from"}),
               "expected human, user, gpt, assistant, chatgpt, bing, bard or system as `from`, got another speaker");
      messages.push_back({{"role", speaker->second}, {"content", text_in(items[i], path, "value")}});
    }
    return std::make_shared<const Json>(std::move(messages));
  }

  void alpaca(Row& row) const {
    const Json* input = find(json_, "input");
    const bool has_input = input && !input->is_null() && !text("input").empty();
    row.prompt = fmt::format(
        "Below is an instruction that describes a task{}. Write a response that appropriately completes the request.\n\n### "
        "Instruction:\n{}\n\n"
        "{}### Response:\n",
        has_input ? ", paired with an input that provides further context" : "", text("instruction"),
        has_input ? "### Input:\n" + text("input") + "\n\n" : "");
    row.completion = text("output");
  }

  // Whole numbers from `least` to 2^31 - 1.
  std::vector<i64> numbers(const char* key, i64 least) const {
    const Json* items = find(json_, key);
    if (!items || !items->is_array()) reject({key}, fmt::format("a list of tokens as `{}`", key), items);
    std::vector<i64> values;
    for (const Json& item : *items) {
      const bool whole = item.is_number_integer() && (!item.is_number_unsigned() || item.get<u64>() <= static_cast<u64>(kMaxId));
      const i64 value = whole ? item.get<i64>() : least - 1;
      if (value < least || value > kMaxId)
        reject(json_place(line_, {key, values.size()}),
               fmt::format("expected whole numbers from {} to {} in `{}`, got {}", least, kMaxId, key, item.dump().substr(0, 40)));
      values.push_back(value);
    }
    return values;
  }

  // Of one number for each token; none where the key is not there.
  std::vector<i64> beside_tokens(const char* key, size_t tokens, i64 least) const {
    const Json* items = find(json_, key);
    if (!items || items->is_null()) return {};
    std::vector<i64> values = numbers(key, least);
    if (values.size() != tokens)
      reject(json_place(line_, {key}),
             fmt::format("expected one number in `{}` for each of {} tokens, got {}", key, tokens, values.size()));
    return values;
  }

  void tokens(Row& row) const {
    const std::vector<i64> ids = numbers("input_ids", 0);
    const std::vector<i64> labels = beside_tokens("labels", ids.size(), kNotCounted);
    const std::vector<i64> mask = beside_tokens("attention_mask", ids.size(), 0);
    bool ended = false;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (!mask.empty() && mask[i] == 0) {
        ended = !row.ids.empty();
        continue;
      }
      if (ended) reject(json_place(line_, {"attention_mask", i}), "expected padding before or behind the tokens, got some between them");
      if (!labels.empty() && labels[i] != kNotCounted && labels[i] != ids[i])
        reject(json_place(line_, {"labels", i}),
               fmt::format("expected {} or the token {} as label, got {}", kNotCounted, ids[i], labels[i]));
      row.ids.push_back(static_cast<i32>(ids[i]));
      row.counted.push_back(labels.empty() || labels[i] != kNotCounted);
    }
    if (row.ids.empty()) reject(json_place(line_, {"input_ids"}), "expected at least one token in `input_ids`, got none");
  }

  std::string_view line_;
  const std::string& file_;
  i64 number_;
  Json json_;
};

}  // namespace

std::optional<RowLayout> row_layout(std::string_view name) {
  const auto* found = std::find(kNames.begin(), kNames.end(), name);
  return found == kNames.end() ? std::nullopt : std::optional(static_cast<RowLayout>(found - kNames.begin()));
}

Row parse_row(std::string_view line, std::optional<RowLayout> layout, const std::string& file, i64 line_number) {
  return Line(line, file, line_number).row(layout);
}

}  // namespace spillway::data
