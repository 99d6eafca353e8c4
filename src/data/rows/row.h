// Lines of fine-tuning data: six known layouts of one JSON object a line, and what a line becomes: a text, a prompt with its completion,
// a conversation for the chat template, or tokens made elsewhere. Thread-safe: values and pure functions.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace spillway::data {

/// How a line is written. `text`: {"text"}. `completion`: {"prompt", "completion"}. `messages`: {"messages": [{"role", "content"}…]}.
/// `alpaca`: {"instruction", "input", "output"}. `sharegpt`: {"conversations": [{"from", "value"}…]}. `tokens`: {"input_ids", "labels",
/// "attention_mask"}, lists of one length, the latter two if need be. Other keys are ignored.
enum class RowLayout : u8 { text, completion, messages, alpaca, sharegpt, tokens };

/// By its name, as above; nothing for another.
std::optional<RowLayout> row_layout(std::string_view name);

struct Row {
  RowLayout layout = RowLayout::text;
  std::string text;                                          // of text
  std::string prompt, completion;                            // of completion and alpaca
  std::shared_ptr<const nlohmann::ordered_json> messages{};  // of messages and sharegpt: [{"role", "content"…}…], not empty
  std::vector<i32> ids{};                                    // of tokens: those that attention_mask leaves, at least one
  std::vector<u8> counted{};                                 // of tokens: 1 where the label is not -100
};

/// One line, without its "\n". Without a layout it is recognized by its keys. An Alpaca row's prompt is that of Stanford's Alpaca, with or
/// without an input; ShareGPT's speakers become user, assistant and system. A message may lack its content when it has tool_calls.
/// Error(data) "[data] FILE, line N, column C: expected …, got …": no JSON object, texts that are no UTF-8 or have half a surrogate, no
/// known layout or the keys of several, and values that are missing or of the wrong kind; nesting deeper than 200; of tokens a label that is
/// neither -100 nor the token itself, and a mask that leaves out tokens between others.
Row parse_row(std::string_view line, std::optional<RowLayout> layout, const std::string& file, i64 line_number);

}  // namespace spillway::data
