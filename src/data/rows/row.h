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
/// `alpaca`: {"instruction", "input", "output"}. `sharegpt`: {"conversations": [{"from", "value"}…]}. `tokens`: {"input_ids"}. What else a
/// layout reads stands at parse_row(); further keys are in Row::unread.
enum class RowLayout : u8 { text, completion, messages, alpaca, sharegpt, tokens };

/// By its name, as above; nothing for another.
std::optional<RowLayout> row_layout(std::string_view name);

/// A prompt and what is to follow it.
struct Exchange {
  std::string prompt, completion;
};

struct Row {
  RowLayout layout = RowLayout::text;
  std::string text;                                           // of text
  std::vector<Exchange> history{};                            // of alpaca: what stands before the prompt, in order
  std::string prompt, completion;                             // of completion and alpaca
  std::shared_ptr<const nlohmann::ordered_json> messages{};   // of messages and sharegpt: [{"role", "content"}…], not empty
  std::shared_ptr<const nlohmann::ordered_json> variables{};  // beside them: what the template reads (tools, documents…); null: nothing
  std::vector<u8> left_out{};                                 // of messages: 1 for those of the assistant that do not count; empty: none
  std::vector<i32> ids{};                                     // of tokens: those that attention_mask leaves, at least one
  std::vector<u8> counted{};                                  // of tokens: 1 where the label is not -100
  std::vector<u32> begins{};                                  // of tokens: where a further document begins, ascending, none at 0
  std::vector<std::string> unread{};  // keys that are not read, unless they hold null; "conversations[].KEY" of items
};

/// The row's own variables over these.
nlohmann::ordered_json with_variables(const nlohmann::ordered_json& variables, const Row& row);

/// One line, without its "\n". Without a layout it is recognized by its keys. A message may lack its content when it has tool_calls.
///
/// What each layout reads beside the keys that name it:
/// - messages, sharegpt: `tools` (a list, or that list as a JSON text), `documents` (a list), `chat_template_kwargs` (an object of further
///   variables), as TRL's SFTTrainer and transformers take them. `weight: 0` (OpenAI's fine-tuning format) or `train: false` (axolotl's) of
///   an assistant's message leaves it out of the loss. sharegpt also: `system`, a text that comes first unless the conversation begins with
///   one, and tools without "type" are functions (LLaMA-Factory). Its speakers become user, assistant, system and tool; function_call
///   becomes the assistant's tool_calls.
/// - alpaca: the prompt is that of Stanford's Alpaca, with or without an input. `system` takes the place of its first sentence, and the
///   pairs of `history` become exchanges before it, as in LLaMA-Factory's template "alpaca".
/// - tokens: `labels` (-100 or the token), or else `completion_mask` and `assistant_masks` (TRL's; 0: no target); `attention_mask` (0:
///   padding). Documents that share a row are told by numbers in `attention_mask` (1…1 2…2, LLaMA-Factory), by `position_ids` that begin
///   anew or by `seq_lengths` (TRL), which must agree. `token_type_ids` must be 0.
///
/// Error(data) "[data] FILE, line N, column C: expected …, got …": no JSON object, texts that are no UTF-8 or have half a surrogate, no
/// known layout or the keys of several, and values that are missing or of the wrong kind; nesting deeper than 200; of tokens a label that
/// is neither -100 nor the token itself, a mask that leaves out tokens between others, and lists that contradict each other.
Row parse_row(std::string_view line, std::optional<RowLayout> layout, const std::string& file, i64 line_number);

}  // namespace spillway::data
