#include "data/rows/row.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "data/rows/layouts.h"

namespace spillway::data {
namespace {

// Describes a row layout: its name, the key that identifies it, and the other keys that it reads.
struct Layout {
  const char* name;
  const char* key;
  std::vector<std::string_view> others;
};
const std::array<Layout, 6> kLayouts = {{
    {"text", "text", {}},
    {"completion", "prompt", {"completion"}},
    {"messages", "messages", {"tools", "documents", "chat_template_kwargs"}},
    {"alpaca", "instruction", {"input", "output", "system", "history"}},
    {"sharegpt", "conversations", {"system", "tools", "documents", "chat_template_kwargs"}},
    {"tokens",
     "input_ids",
     {"labels", "attention_mask", "position_ids", "seq_lengths", "completion_mask", "assistant_masks", "token_type_ids"}},
}};

constexpr size_t kMostKeysShown = 200;  // letters

RowLayout recognized(const JsonLine& line) {
  std::optional<RowLayout> layout;
  for (size_t i = 0; i < kLayouts.size(); ++i) {
    const char* key = kLayouts[i].key;
    if (!line.json().contains(key)) continue;
    if (layout)
      line.reject_at({key}, fmt::format("expected the keys of one layout only, got `{}` and `{}`: name the layout with --data-format",
                                        kLayouts[static_cast<size_t>(*layout)].key, key));
    layout = static_cast<RowLayout>(i);
  }
  if (!layout) {
    std::string got;
    for (const auto& [key, value] : line.json().items()) got += (got.empty() ? "" : ", ") + key;
    line.reject(0, fmt::format("expected a key of a known layout (text, prompt, messages, instruction, conversations, input_ids), got {}: "
                               "rename the keys, prompt and completion for a question and its answer",
                               got.empty() ? "no keys" : got.substr(0, kMostKeysShown)));
  }
  return *layout;
}

void note_unread(const JsonLine& line, Row& row) {
  const Layout& layout = kLayouts[static_cast<size_t>(row.layout)];
  for (const auto& [key, value] : line.json().items()) {
    if (key != layout.key && !value.is_null() && std::ranges::find(layout.others, key) == layout.others.end()) row.unread.push_back(key);
  }
}

void read(JsonLine& line, Row& row) {
  switch (row.layout) {
    case RowLayout::text:
      row.text = line.text("text");
      break;
    case RowLayout::completion:
      row.prompt = line.text("prompt");
      row.completion = line.text("completion");
      break;
    case RowLayout::messages:
      read_messages(line, row);
      break;
    case RowLayout::alpaca:
      read_alpaca(line, row);
      break;
    case RowLayout::sharegpt:
      read_conversations(line, row);
      break;
    case RowLayout::tokens:
      read_token_row(line, row);
      break;
  }
}

}  // namespace

std::optional<RowLayout> row_layout(std::string_view name) {
  const auto found = std::ranges::find(kLayouts, name, &Layout::name);
  return found == kLayouts.end() ? std::nullopt : std::optional(static_cast<RowLayout>(found - kLayouts.begin()));
}

nlohmann::ordered_json with_variables(const nlohmann::ordered_json& variables, const Row& row) {
  nlohmann::ordered_json all = variables;
  if (row.variables) all.update(*row.variables);
  return all;
}

Row parse_row(std::string_view line, std::optional<RowLayout> layout, const std::string& file, i64 line_number) {
  JsonLine parsed(line, file, line_number);
  Row row;
  row.layout = layout ? *layout : recognized(parsed);
  note_unread(parsed, row);
  read(parsed, row);
  return row;
}

}  // namespace spillway::data
