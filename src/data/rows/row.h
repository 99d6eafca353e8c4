// Parses lines of fine-tuning data. Each line is a JSON object in one of six known layouts. A row is
// what is read from a line: a text, a prompt with its completion, a conversation for the chat
// template, or a list of token ids that another program made. Thread-safe: values and pure functions.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace spillway::data {

/// The layout of a line and the keys that identify it. `text`: {"text"}. `completion`: {"prompt", "completion"}. `messages`:
/// {"messages": [{"role", "content"}…]}. `alpaca`: {"instruction", "input", "output"}. `sharegpt`: {"conversations": [{"from", "value"}…]}.
/// `tokens`: {"input_ids"}. parse_row() lists the other keys that each layout reads. All remaining keys are reported in Row::unread.
enum class RowLayout : u8 { text, completion, messages, alpaca, sharegpt, tokens };

/// Returns the layout of that name, or nothing for an unknown name.
std::optional<RowLayout> row_layout(std::string_view name);

/// An exchange in a conversation: a prompt and the answer that follows it.
struct Exchange {
  std::string prompt, completion;
};

struct Row {
  RowLayout layout = RowLayout::text;
  std::string text;                                           // the text of layout `text`
  std::vector<Exchange> history{};                            // layout `alpaca`: the exchanges that precede the prompt, in order
  std::string prompt, completion;                             // the prompt and completion of the layouts `completion` and `alpaca`
  std::shared_ptr<const nlohmann::ordered_json> messages{};   // layouts `messages` and `sharegpt`: [{"role", "content"}…], not empty
  std::shared_ptr<const nlohmann::ordered_json> variables{};  // the row's template variables (tools, documents…), or null
  std::vector<u8> left_out{};                                 // for each message, 1 if it is excluded from the loss; may be empty
  std::vector<i32> ids{};                                     // layout `tokens`: the ids that attention_mask keeps, at least one
  std::vector<u8> counted{};                                  // layout `tokens`: for each token, 1 if its label is not -100
  std::vector<u32> begins{};                                  // layout `tokens`: where further documents begin, ascending, without 0
  // The keys that this program does not use and whose value is not null.
  // A key of the conversation's items appears as "conversations[].KEY".
  std::vector<std::string> unread{};
};

/// Returns `variables` together with the row's own variables. If a name occurs in both, the row's value is used.
nlohmann::ordered_json with_variables(const nlohmann::ordered_json& variables, const Row& row);

/// Parses one line, given without its "\n". If `layout` has no value, the layout is recognised by the line's keys. A message with
/// tool_calls may lack its content.
///
/// In addition to the keys that RowLayout lists, the layouts read these:
/// - messages, sharegpt: `tools` (a list, or that list as JSON text), `documents` (a list) and `chat_template_kwargs` (an object of further
///   variables). TRL's SFTTrainer and transformers read the same keys. An assistant's message with `weight: 0` (OpenAI's fine-tuning
///   format) or `train: false` (axolotl's) is excluded from the loss.
/// - sharegpt: also `system`, a text that is put first unless the conversation begins with a system message. The speakers become user,
///   assistant, system and tool, and a function_call becomes the assistant's tool_calls. A tool without "type" is taken as a function, as
///   in LLaMA-Factory.
/// - alpaca: `system` and `history`. The prompt is that of Stanford's Alpaca, with or without an input. `system` replaces the prompt's
///   first sentence, and the pairs of `history` become exchanges before the prompt, as in LLaMA-Factory's template "alpaca".
/// - tokens: `labels` (each -100 or the token itself). Without labels, `completion_mask` and `assistant_masks` (TRL's), in which 0 means
///   that the token is no target. `attention_mask`, in which 0 means padding. If documents share a row, they are marked by numbers in
///   `attention_mask` (1…1 2…2, LLaMA-Factory), by `position_ids` that restart, or by `seq_lengths` (TRL). If several of these are given,
///   they must agree. `token_type_ids` must be 0.
///
/// Throws Error(data) "[data] FILE, line N, column C: expected …, got …" in these cases: the line is not a JSON object or nests deeper than
/// 200 levels; a text is not UTF-8 or has half a surrogate pair; the keys fit no known layout, or several; a value is missing or of the
/// wrong kind. For `tokens` it also throws if a label is neither -100 nor the token itself, if a mask leaves out tokens between others, or
/// if lists contradict each other.
Row parse_row(std::string_view line, std::optional<RowLayout> layout, const std::string& file, i64 line_number);

}  // namespace spillway::data
